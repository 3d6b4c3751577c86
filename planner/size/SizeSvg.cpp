//===- SizeSvg.cpp - Sizes as a picture --------------------------------------===//

#include "planner/size/Size.h"
#include "planner/support/Format.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace tbc::planner {

namespace {

constexpr double width = 900, height = 560, left = 86, right = 30, top = 64, bottom = 56;

/// Hues with a contrast of 3 to white and to #0d1117; shapes differ too.
const char *const hues[] = {"#3b78b8", "#b8860b", "#2e8b57", "#c0504d", "#8064a2", "#4a9aa5"};

std::string escaped(const std::string &text) {
  std::string result;
  for (char c : text)
    result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '"' ? "&quot;" : std::string(1, c);
  return result;
}

std::string numberText(double value) {
  const char *units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(units); ++unit)
    value /= 1000;
  return format("%.3g%s", value, units[unit]);
}

/// A logarithmic axis.
struct Axis {
  double low, high, from, to;

  double at(double value) const {
    return from + (to - from) * std::log(value / low) / std::log(high / low);
  }
  bool has(double value) const { return value >= low && value <= high; }

  /// Returns round values: 1, 2 and 5 times powers of ten, and more on a short axis.
  std::vector<double> ticks() const {
    constexpr double shortAxis = 12;
    const std::vector<double> few = {1, 2, 5}, many = {1, 1.5, 2, 3, 4, 5, 7};
    std::vector<double> list;
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
      for (double factor : high / low < shortAxis ? many : few)
        if (has(power * factor))
          list.push_back(power * factor);
    return list;
  }
};

Axis axisOf(std::vector<double> values, double from, double to) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low / 1.25, *high * 1.25, from, to};
}

/// Draws one answer.
class Picture {
public:
  explicit Picture(const SizeAnswer &answer)
      : answer(answer), hasMoney(answer.unpriced.empty()),
        costName(hasMoney ? answer.currency : "device-hours") {
    std::vector<double> days, costs;
    for (const SizeRow &row : answer.rows) {
      days.insert(days.end(), {row.days.low, row.days.high});
      costs.push_back(costOf(row));
    }
    if (answer.deadlineDays)
      days.push_back(*answer.deadlineDays);
    if (answer.budget && hasMoney)
      costs.push_back(*answer.budget);
    x = axisOf(days, left, width - right);
    y = axisOf(costs, height - bottom, top);
  }

  std::string run() {
    const std::string title = numberText(answer.tokens) + " " + answer.unit() + " of " +
                              answer.model + ": days against " + costName;
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-labelledby="t d" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">)"
        "\n",
        width, height);
    text += "<title id=\"t\">" + escaped(title) + "</title>\n<desc id=\"d\">" + description() +
            "</desc>\n";
    text += "<style>\n"
            ".page { fill: #ffffff } .ink { fill: #1f2328 } .faint { fill: #59636e }\n"
            ".grid { stroke: #d1d9e0 } .limit { stroke: #c4262e; stroke-dasharray: 5 3 }\n"
            ".halo { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }\n"
            "@media (prefers-color-scheme: dark) {\n"
            " .page { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9ba5b0 }\n"
            " .grid { stroke: #30363d } .limit { stroke: #ff7b72 } .halo { stroke: #0d1117 }\n"
            "}\n</style>\n";
    add(R"(<rect class="page" width="%g" height="%g"/>)"
        "\n",
        width, height);
    label(left, 26, "start", "ink", title, "font-size=\"16\" font-weight=\"600\"");
    grid();
    limits();
    std::vector<std::string> clusters;
    for (const SizeRow &row : answer.rows)
      if (std::find(clusters.begin(), clusters.end(), row.cluster) == clusters.end())
        clusters.push_back(row.cluster);
    double legend = left;
    for (size_t i = 0; i < clusters.size(); ++i) {
      series(clusters[i], hues[i % std::size(hues)]);
      add(R"(<circle cx="%g" cy="46" r="5" fill="%s"/>)", legend + 5, hues[i % std::size(hues)]);
      label(legend + 16, 50, "start", "ink", clusters[i]);
      legend += 36 + 7.6 * double(clusters[i].size());
    }
    for (const SizeRow &row : answer.rows)
      number(row);
    label(legend, 50, "start", "faint", "filled: Pareto front; bars: interval of the days");
    return text + "</svg>\n";
  }

private:
  double costOf(const SizeRow &row) const {
    return hasMoney ? row.money->middle : row.deviceHours.middle;
  }

  void add(const char *pattern, ...) __attribute__((format(printf, 2, 3))) {
    va_list arguments;
    va_start(arguments, pattern);
    char piece[1024];
    std::vsnprintf(piece, sizeof piece, pattern, arguments);
    va_end(arguments);
    text += piece;
  }

  void label(double atX, double atY, const char *anchor, const char *kind, const std::string &words,
             const char *more = "") {
    add(R"(<text x="%.1f" y="%.1f" text-anchor="%s" class="%s" %s>)", atX, atY, anchor, kind, more);
    text += escaped(words) + "</text>\n";
  }

  std::string description() const {
    std::string words;
    for (const SizeRow &row : answer.rows)
      if (row.isFront)
        words += (words.empty() ? "Pareto front: " : "; ") + std::to_string(row.devices) + " x " +
                 row.cluster + " " + format("%.3g days, ", row.days.middle) +
                 numberText(costOf(row)) + " " + costName;
    return escaped(words);
  }

  void grid() {
    for (double value : x.ticks()) {
      add(R"(<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>)"
          "\n",
          x.at(value), x.at(value), top, height - bottom);
      label(x.at(value), height - bottom + 18, "middle", "faint", numberText(value));
    }
    for (double value : y.ticks()) {
      add(R"(<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>)"
          "\n",
          left, width - right, y.at(value), y.at(value));
      label(left - 8, y.at(value) + 4, "end", "faint", numberText(value));
    }
    label((left + width - right) / 2, height - 14, "middle", "faint", "days, logarithmic");
    add(R"svg(<g transform="translate(18 %g) rotate(-90)">)svg", (top + height - bottom) / 2);
    label(0, 0, "middle", "faint", costName + ", logarithmic");
    text += "</g>\n";
  }

  void limits() {
    if (answer.deadlineDays) {
      const double at = x.at(*answer.deadlineDays);
      add(R"(<line class="limit" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>)"
          "\n",
          at, at, top, height - bottom);
      label(at - 5, height - bottom - 6, "end", "ink halo",
            "deadline " + numberText(*answer.deadlineDays) + " days");
    }
    if (answer.budget && hasMoney) {
      const double at = y.at(*answer.budget);
      add(R"(<line class="limit" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>)"
          "\n",
          left, width - right, at, at);
      label(left + 6, at + 16, "start", "ink halo",
            "budget " + numberText(*answer.budget) + " " + answer.currency);
    }
  }

  /// Draws the sizes of one cluster, joined by a line.
  void series(const std::string &cluster, const char *hue) {
    std::string path;
    for (const SizeRow &row : answer.rows)
      if (row.cluster == cluster)
        path += format("%s%.1f %.1f", path.empty() ? "M" : "L", x.at(row.days.middle),
                       y.at(costOf(row)));
    text += "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + hue +
            "\" stroke-width=\"1.4\" opacity=\"0.55\"/>\n";
    for (const SizeRow &row : answer.rows) {
      if (row.cluster != cluster)
        continue;
      const double cx = x.at(row.days.middle), cy = y.at(costOf(row));
      text += "<g><title>" +
              escaped(std::to_string(row.devices) + " x " + row.cluster +
                      format(": %.3g days (%.3g to %.3g), ", row.days.middle, row.days.low,
                             row.days.high) +
                      numberText(costOf(row)) + " " + costName + "; " + row.decisions) +
              "</title>\n";
      add(R"(<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="3" opacity="0.3"/>)"
          "\n",
          x.at(row.days.low), x.at(row.days.high), cy, cy, hue);
      add(R"(<circle cx="%.1f" cy="%.1f" r="5.5" fill="%s" stroke="%s" stroke-width="1.8"%s/>)"
          "\n",
          cx, cy, row.isFront ? hue : "#ffffff", hue, row.isFront ? "" : " class=\"page\"");
      text += "</g>\n";
    }
  }

  /// Writes the number of devices above a point, or below it if another point is near above.
  void number(const SizeRow &row) {
    constexpr double near = 34;
    const double cx = x.at(row.days.middle), cy = y.at(costOf(row));
    const bool isBelow =
        std::any_of(answer.rows.begin(), answer.rows.end(), [&](const SizeRow &other) {
          const double up = cy - y.at(costOf(other));
          return &other != &row && std::fabs(x.at(other.days.middle) - cx) < near && up > 0 &&
                 up < near;
        });
    label(cx, cy + (isBelow ? 20 : -11), "middle", "ink halo", std::to_string(row.devices));
  }

  const SizeAnswer &answer;
  const bool hasMoney;
  const std::string costName;
  Axis x = {}, y = {};
  std::string text;
};

} // namespace

std::string toSvg(const SizeAnswer &answer) { return Picture(answer).run(); }

} // namespace tbc::planner
