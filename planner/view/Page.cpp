//===- Page.cpp - The report as one HTML file ------------------------------===//

#include "planner/view/Page.h"
#include "planner/view/PageParts.h"

#include <map>

namespace tbc::planner {

std::string escapeHtml(const std::string &text) {
  std::string result;
  for (char c : text) {
    switch (c) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    default:
      result += c;
    }
  }
  return result;
}

/// Returns JSON that cannot end the element that contains it: "</script>" and "<!--" have no "<".
static std::string inScript(const std::string &json) {
  std::string result;
  for (char c : json)
    if (c == '<')
      result += "\\u003c";
    else
      result += c;
  return result;
}

std::string reportPage(const std::vector<PlanView> &views) {
  std::string texts, title;
  for (const PlanView &view : views) {
    texts += view.file + "\n\n" + view.text + "\n";
    title += (title.empty() ? "" : ", ") + view.model;
  }
  const std::map<std::string, std::string> parts = {{"TITLE", escapeHtml(title)},
                                                    {"STYLE", pageStyle()},
                                                    {"SCRIPT", pageScript()},
                                                    {"TEXT", escapeHtml(texts)},
                                                    {"DATA", inScript(toJson(views))}};
  // One pass, so that a mark within a part is text.
  const std::string &html = pageHtml();
  std::string page;
  for (size_t begin = 0; begin < html.size();) {
    size_t mark = html.find("{{", begin), end = html.find("}}", mark);
    if (mark == std::string::npos || end == std::string::npos) {
      page += html.substr(begin);
      break;
    }
    page += html.substr(begin, mark - begin) + parts.at(html.substr(mark + 2, end - mark - 2));
    begin = end + 2;
  }
  return page;
}

} // namespace tbc::planner
