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
  case Kind::Amount:
    return number == 0 ? "0" : formatCount(number);
  case Kind::Share:
    std::snprintf(digits, sizeof digits, "%.1f %%", 100 * number);
    return digits;
  }
  return "";
}

void keepFirst(Table &table, size_t most, const std::string &key) {
  if (table.rows.size() <= most)
    return;
  const auto column = std::find_if(table.columns.begin(), table.columns.end(),
                                   [&](const Column &one) { return one.key == key; }) -
                      table.columns.begin();
  double rest = 0;
  for (size_t row = most; row < table.rows.size(); ++row)
    rest += table.rows[row][size_t(column)].number;
  table.note =
      std::to_string(table.rows.size() - most) + " more, together " + Cell::seconds(rest).toText();
  table.rows.resize(most);
}

static Json jsonOf(const Cell &cell) {
  switch (cell.kind) {
  case Cell::Kind::Text:
    return cell.text;
  case Cell::Kind::Bytes:
  case Cell::Kind::Count:
    return int64_t(std::llround(cell.number));
  case Cell::Kind::Amount:
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

/// Narrows text columns, the widest first, until a line of `widths` has at most `columns`.
static void narrow(std::vector<size_t> &widths, const std::vector<bool> &isNumber, size_t columns) {
  constexpr size_t narrowest = 12;
  size_t total = 1;
  for (size_t width : widths)
    total += width + 1;
  for (; total > columns; --total) {
    size_t chosen = widths.size();
    for (size_t i = 0; i < widths.size(); ++i)
      if (!isNumber[i] && widths[i] > narrowest &&
          (chosen == widths.size() || widths[i] > widths[chosen]))
        chosen = i;
    if (chosen == widths.size())
      return;
    --widths[chosen];
  }
}

/// Cuts `text` into lines of at most `width`, behind a blank, comma or dot if possible.
static std::vector<std::string> wrapped(std::string text, size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    size_t end = text.find_last_of(" ,.", text[width] == ' ' ? width : width - 1);
    size_t cut = end == std::string::npos || end == 0 ? width : end + 1;
    std::string line = text.substr(0, cut);
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
    text.erase(0, cut);
  }
  lines.push_back(text);
  return lines;
}

static std::string tableText(const Table &table, int columns) {
  std::vector<size_t> widths;
  for (const Column &column : table.columns)
    widths.push_back(column.heading.size());
  for (const std::vector<Cell> &row : table.rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], shown(row[i]).size());
  std::vector<bool> isNumber;
  for (size_t i = 0; i < table.columns.size(); ++i)
    isNumber.push_back(!table.rows.empty() && table.rows[0][i].kind != Cell::Kind::Text);
  if (columns > 0)
    narrow(widths, isNumber, size_t(columns));
  // A line of the table, or several where a cell is wrapped.
  auto linesOf = [&](auto textOf) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      cells.push_back(wrapped(textOf(i), widths[i]));
      height = std::max(height, cells.back().size());
    }
    std::string lines;
    for (size_t l = 0; l < height; ++l) {
      std::string line = " ";
      for (size_t i = 0; i < cells.size(); ++i)
        line += " " + padded(l < cells[i].size() ? cells[i][l] : "", widths[i], isNumber[i]);
      lines += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return lines;
  };
  std::string text = table.title + "\n";
  if (table.rows.empty())
    return text + "  none\n";
  text += linesOf([&](size_t i) { return table.columns[i].heading; });
  for (const std::vector<Cell> &row : table.rows)
    text += linesOf([&](size_t i) { return shown(row[i]); });
  if (!table.note.empty())
    text += "  " + table.note + "\n";
  return text;
}

std::string toText(const Report &report, int columns) {
  std::string text;
  for (const Fact &fact : report.facts)
    text += fact.label.empty() ? fact.value.toText() + "\n"
                               : fact.label + ": " + fact.value.toText() + "\n";
  for (const Table &table : report.tables)
    text += (text.empty() ? "" : "\n") + tableText(table, columns);
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
