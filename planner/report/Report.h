//===- Report.h - Tables for people and for programs -----------------------===//
//
// Plain C++. The output of a command beside the plan: the same content as text for a terminal and
// as JSON.
//
//===----------------------------------------------------------------------===//

#ifndef TBC_PLANNER_REPORT_REPORT_H
#define TBC_PLANNER_REPORT_REPORT_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tbc::planner {

/// One entry. JSON has a string or a plain number (bytes, seconds, a share of 1); text has a unit.
struct Cell {
  enum class Kind { Text, Count, Amount, Bytes, Seconds, Share };
  Kind kind = Kind::Text;
  std::string text;
  double number = 0;

  static Cell of(std::string text) { return {Kind::Text, std::move(text), 0}; }
  static Cell count(double number) { return {Kind::Count, "", number}; }
  /// A large number, in text with three digits. Example: amount(1.5e12) gives "1.50 T".
  static Cell amount(double number) { return {Kind::Amount, "", number}; }
  static Cell bytes(double number) { return {Kind::Bytes, "", number}; }
  static Cell seconds(double number) { return {Kind::Seconds, "", number}; }
  static Cell share(double number) { return {Kind::Share, "", number}; }

  /// Returns the terminal form. Example: bytes(1.5 * 2^30) gives "1.50 GiB".
  std::string toText() const;
};

/// A heading, and its key in JSON.
struct Column {
  std::string key, heading;
};

struct Table {
  std::string key, title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::string note; // a line below it, for people; may be empty
};

/// Keeps the first `most` rows, and adds up the seconds of the others (column `key`) in the note.
/// Example: "3 more, together 1.20 ms".
void keepFirst(Table &table, size_t most, const std::string &key = "seconds");

struct Fact {
  std::string key, label;
  Cell value;
};

struct Report {
  std::vector<Fact> facts;
  std::vector<Table> tables;
};

/// Facts one per line, then the tables. `columns`: tables are to be no wider, if their text can be
/// wrapped within its columns; 0: as wide as their content.
std::string toText(const Report &report, int columns = 0);

/// {"format": "tbc-explain", "version": 1, "about": .., facts.., tables as arrays of objects..}
std::string toJson(const Report &report, const std::string &about);

} // namespace tbc::planner

#endif // TBC_PLANNER_REPORT_REPORT_H
