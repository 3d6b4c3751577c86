//===- Setup.cpp - A parallel configuration of any framework ----------------===//

#include "tools/judge/Setup.h"

#include "runtime/abi/ClosestWord.h"

#include <charconv>

namespace tbc::judge {

std::optional<int64_t> Setup::number(Field field) {
  auto found = values.find(field);
  if (found == values.end() || found->second == "auto" || found->second == "-1" ||
      found->second.empty())
    return std::nullopt;
  int64_t value = 0;
  const std::string &text = found->second;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    refuse("Value", keys[field] + " is \"" + text + "\", no positive number");
    values.erase(found);
    return std::nullopt;
  }
  return value;
}

int64_t Setup::number(Field field, int64_t otherwise) { return number(field).value_or(otherwise); }

std::string Setup::text(Field field) const {
  auto found = values.find(field);
  return found == values.end() ? "" : found->second;
}

bool Setup::isOn(Field field) const {
  std::string value = text(field);
  for (char &c : value)
    c = char(std::tolower(static_cast<unsigned char>(c)));
  return has(field) && value != "false" && value != "no" && value != "none" && value != "0";
}

void readWords(Setup &setup, const std::vector<Entry> &entries, const std::vector<Word> &words,
               const std::vector<std::string> &ignored) {
  std::vector<std::string> known = ignored;
  for (const Word &word : words)
    known.push_back(word.key);
  for (const Entry &entry : entries) {
    bool isKnown = false;
    for (const Word &word : words)
      if (entry.key == word.key) {
        isKnown = true;
        if (word.field != Field::Ignored)
          setup.set(word.field, entry.key, entry.value);
      }
    for (const std::string &key : ignored)
      // A name that ends in a dot is a whole section.
      isKnown |= entry.key == key || (key.back() == '.' && entry.key.rfind(key, 0) == 0);
    if (isKnown)
      continue;
    std::string near = closestWord(entry.key, known);
    setup.refuse("UnknownKey", setup.kind + " has no key " + entry.key +
                                   (near.empty() ? "" : "; did you mean " + near + "?"));
  }
}

void noteLeftOut(Setup &setup, const std::vector<Entry> &entries,
                 const std::vector<std::string> &words) {
  for (const std::string &word : words) {
    std::string given;
    for (const Entry &entry : entries) {
      const bool isOf = word.back() == '.' ? entry.key.rfind(word, 0) == 0 : entry.key == word;
      const bool isOff = entry.value == "fp32" || entry.value == "float32" ||
                         entry.value == "false" || entry.value == "False";
      if (isOf && !isOff)
        given += (given.empty() ? "" : ", ") + entry.key +
                 (entry.value.empty() ? "" : " " + entry.value);
    }
    if (!given.empty())
      setup.notes.push_back(given + ": left out, though it may change time and memory");
  }
}

} // namespace tbc::judge
