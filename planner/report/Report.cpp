//===- Report.cpp - Tables for people and for programs ---------------------===//

#include "planner/report/Report.h"
#include "planner/report/Summary.h"
#include "planner/support/Format.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tbc::planner {

using Json = nlohmann::json;

std::string Cell::toText() const {
  char digits[32];
  switch (kind) {
  case Kind::Text:
    return text;
  case Kind::Bytes:
    return formatBytes(number);
  case Kind::Seconds:
    return number < 0 ? "-" + formatSeconds(-number) : formatSeconds(number);
  case Kind::Count:
    std::snprintf(digits, sizeof digits, "%.0f", number);
    return digits;
  case Kind::Share:
    std::snprintf(digits, sizeof digits, "%.1f %%", 100 * number);
    return digits;
  }
  return "";
}

static Json jsonOf(const Cell &cell) {
  switch (cell.kind) {
  case Cell::Kind::Text:
    return cell.text;
  case Cell::Kind::Bytes:
  case Cell::Kind::Count:
    return int64_t(std::llround(cell.number));
  case Cell::Kind::Seconds:
  case Cell::Kind::Share:
    return cell.number;
  }
  return nullptr;
}

/// The largest width of a name in a table; longer names are cut. JSON has them whole.
constexpr size_t widest = 60;

static std::string shown(const Cell &cell) {
  std::string text = cell.toText();
  return text.size() <= widest ? text : text.substr(0, widest - 3) + "...";
}

static std::string padded(const std::string &text, size_t width, bool toTheRight) {
  std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return toTheRight ? blanks + text : text + blanks;
}

static std::string tableText(const Table &table) {
  std::vector<size_t> widths;
  for (const Column &column : table.columns)
    widths.push_back(column.heading.size());
  for (const std::vector<Cell> &row : table.rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], shown(row[i]).size());
  auto isNumber = [&](size_t column) {
    return !table.rows.empty() && table.rows[0][column].kind != Cell::Kind::Text;
  };
  auto lineOf = [&](auto textOf) {
    std::string line = " ";
    for (size_t i = 0; i < table.columns.size(); ++i)
      line += " " + padded(textOf(i), widths[i], isNumber(i));
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = table.title + "\n";
  if (table.rows.empty())
    return text + "  none\n";
  text += lineOf([&](size_t i) { return table.columns[i].heading; });
  for (const std::vector<Cell> &row : table.rows)
    text += lineOf([&](size_t i) { return shown(row[i]); });
  if (!table.note.empty())
    text += "  " + table.note + "\n";
  return text;
}

std::string toText(const Report &report) {
  std::string text;
  for (const Fact &fact : report.facts)
    text += fact.label.empty() ? fact.value.toText() + "\n"
                               : fact.label + ": " + fact.value.toText() + "\n";
  for (const Table &table : report.tables)
    text += (text.empty() ? "" : "\n") + tableText(table);
  return text;
}

std::string toJson(const Report &report, const std::string &about) {
  Json json = {{"format", "tbc-explain"}, {"version", 1}, {"about", about}};
  for (const Fact &fact : report.facts)
    json[fact.key] = jsonOf(fact.value);
  for (const Table &table : report.tables) {
    Json rows = Json::array();
    for (const std::vector<Cell> &row : table.rows) {
      Json object = Json::object();
      for (size_t i = 0; i < row.size(); ++i)
        object[table.columns[i].key] = jsonOf(row[i]);
      rows.push_back(std::move(object));
    }
    json[table.key] = std::move(rows);
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace tbc::planner
