//===- Attrs.cpp - The attributes of an op, without MLIR -------------------===//
//
// Part of tbc.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/Attrs.h"
#include "runtime/kernels/KernelError.h"

using namespace tbc::kernels;

const AttrValue *Attrs::find(const std::string &name) const {
  auto it = values.find(name);
  return it == values.end() ? nullptr : &it->second;
}

namespace {

template <typename T>
const T &get(const Attrs &attrs, const std::string &name, const char *kindName) {
  const AttrValue *value = attrs.find(name);
  require(value, [&] { return "attribute '" + name + "' is missing"; });
  const T *typed = std::get_if<T>(value);
  require(typed, [&] { return "attribute '" + name + "' is not " + kindName; });
  return *typed;
}

} // namespace

int64_t Attrs::getInt(const std::string &name) const {
  return get<int64_t>(*this, name, "an integer");
}

int64_t Attrs::getInt(const std::string &name, int64_t defaultValue) const {
  return has(name) ? getInt(name) : defaultValue;
}

double Attrs::getDouble(const std::string &name) const {
  return get<double>(*this, name, "a real number");
}

double Attrs::getDouble(const std::string &name, double defaultValue) const {
  return has(name) ? getDouble(name) : defaultValue;
}

bool Attrs::getBool(const std::string &name) const {
  return get<bool>(*this, name, "true or false");
}

bool Attrs::getBool(const std::string &name, bool defaultValue) const {
  return has(name) ? getBool(name) : defaultValue;
}

const std::string &Attrs::getString(const std::string &name) const {
  return get<std::string>(*this, name, "a string");
}

const std::vector<int64_t> &Attrs::getInts(const std::string &name) const {
  return get<std::vector<int64_t>>(*this, name, "a list of integers");
}

const std::vector<double> &Attrs::getDoubles(const std::string &name) const {
  return get<std::vector<double>>(*this, name, "a list of real numbers");
}

const std::vector<std::string> &Attrs::getStrings(const std::string &name) const {
  return get<std::vector<std::string>>(*this, name, "a list of strings");
}
