//===- Attrs.h - The attributes of an op, without MLIR ---------------------===//
//
// Part of tbc. Plain C++.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_RUNTIME_KERNELS_ATTRS_H
#define TBC_RUNTIME_KERNELS_ATTRS_H

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace tbc::kernels {

/// The value of an attribute. A `constant` op has its elements under "value" as a vector<double> or
/// vector<int64_t>; a single element fills the tensor.
using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

/// Attributes by name, sorted. A getter throws KernelError with the attribute's name if it is
/// missing or of another kind. A getter with a default throws only for another kind.
class Attrs {
public:
  using Map = std::map<std::string, AttrValue>;

  Attrs() = default;
  Attrs(std::initializer_list<Map::value_type> entries) : values(entries) {}

  void set(const std::string &name, AttrValue value) { values[name] = std::move(value); }
  bool has(const std::string &name) const { return values.count(name) != 0; }
  const AttrValue *find(const std::string &name) const;
  const Map &entries() const { return values; }

  int64_t getInt(const std::string &name) const;
  int64_t getInt(const std::string &name, int64_t defaultValue) const;
  double getDouble(const std::string &name) const;
  double getDouble(const std::string &name, double defaultValue) const;
  bool getBool(const std::string &name) const;
  bool getBool(const std::string &name, bool defaultValue) const;
  const std::string &getString(const std::string &name) const;
  const std::vector<int64_t> &getInts(const std::string &name) const;
  const std::vector<double> &getDoubles(const std::string &name) const;
  const std::vector<std::string> &getStrings(const std::string &name) const;

private:
  Map values;
};

inline bool operator==(const Attrs &a, const Attrs &b) { return a.entries() == b.entries(); }

} // namespace tbc::kernels

#endif // TBC_RUNTIME_KERNELS_ATTRS_H
