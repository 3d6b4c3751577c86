//===- PageTest.cpp - The page of a report ----------------------------------===//

#include "planner/view/Page.h"
#include "planner/view/PageParts.h"
#include "tests/planner/view/Plans.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <regex>

using namespace tbc;
using namespace tbc::planner;
using namespace tbc::planner::test;

static size_t countOf(const std::string &text, const std::string &word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

/// Without the page in the message of a failure.
static bool has(const std::string &page, const std::string &word) {
  return page.find(word) != std::string::npos;
}

static std::string dataOf(const std::string &page) {
  const std::string begin = "id=\"data\">\n";
  size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

TEST(Page, EmbedsItsPartsWhole) {
  const std::string page = reportPage({viewOf(planOf("dp=8"), "plan.json")});
  EXPECT_TRUE(has(page, pageStyle()));
  EXPECT_TRUE(has(page, pageScript()));
  EXPECT_TRUE(has(pageScript(), "\nstart();\n"));
  for (const char *mark : {"{{TITLE}}", "{{STYLE}}", "{{SCRIPT}}", "{{TEXT}}", "{{DATA}}"})
    EXPECT_FALSE(has(page, mark)) << mark;
  EXPECT_EQ(nlohmann::json::parse(dataOf(page))["plans"].size(), 1u);
}

TEST(Page, KeepsHostileNamesText) {
  const std::string hostile =
      "</script><script>alert(1)</script><!--<script {{DATA}} & \"'\xe2\x80\xa8";
  const std::string plain = reportPage({viewOf(planOf("dp=8"), "plan.json")});
  Plan plan = planOf("dp=8");
  plan.job.modelPath = hostile;
  plan.cluster.name = plan.cluster.description = plan.bindingConstraint = hostile;
  plan.blocks[0].name = plan.blocks[0].firstOp = plan.blocks[0].split = hostile;
  plan.stages[0] = hostile;
  plan.stageNames = {hostile};
  plan.warnings = plan.assumptions = plan.recomputeOps = {hostile};
  plan.reasons = {{hostile, hostile, Origin::Solved, hostile}};
  plan.alternatives.resize(1);
  plan.alternatives[0].note = hostile;
  const std::string page = reportPage({viewOf(plan, hostile)});
  EXPECT_EQ(countOf(page, "<script"), countOf(plain, "<script"));
  EXPECT_EQ(countOf(page, "</script"), countOf(plain, "</script"));
  EXPECT_EQ(countOf(page, "<!--"), 0u);
  EXPECT_FALSE(has(page, "<script>alert"));
  const auto data = nlohmann::json::parse(dataOf(page))["plans"][0];
  EXPECT_EQ(data["file"], hostile);
  EXPECT_EQ(data["layers"][0]["name"], hostile);
  EXPECT_EQ(data["warnings"][0], hostile);
}

TEST(Page, EscapesHtml) {
  EXPECT_EQ(escapeHtml("<a href=\"x\">b & c</a>"),
            "&lt;a href=&quot;x&quot;&gt;b &amp; c&lt;/a&gt;");
}

TEST(Page, RequestsNothing) {
  const std::string page = reportPage({viewOf(planOf("pp=4,dp=2", "1f1b"), "plan.json")});
  const std::regex url("//[a-z0-9.]+\\.[a-z]+");
  std::set<std::string> found;
  for (std::sregex_iterator i(page.begin(), page.end(), url), end; i != end; ++i)
    found.insert(i->str());
  EXPECT_THAT(found, testing::ElementsAre("//www.w3.org")) << "the namespace of SVG only";
  for (const char *word : {"@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", " src="})
    EXPECT_FALSE(has(page, word)) << word;
  EXPECT_TRUE(has(page, "default-src 'none'"));
}

TEST(Page, NeverMakesHtmlOfText) {
  for (const char *word :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("})
    EXPECT_FALSE(has(pageScript(), word)) << word;
}

TEST(Page, IsTheSameForTheSamePlans) {
  const std::vector<PlanView> views = {viewOf(planOf("dp=8"), "a"), viewOf(planOf("fsdp=8"), "b")};
  EXPECT_TRUE(reportPage(views) == reportPage(views));
  EXPECT_EQ(nlohmann::json::parse(dataOf(reportPage(views)))["plans"].size(), 2u);
}

/// Decisions are words, never the numbers of their enums.
TEST(Page, NamesDecisions) {
  const Plan plan = planOf("dp=8");
  const nlohmann::json data = nlohmann::json::parse(toJson({viewOf(plan, "plan.json")}));
  EXPECT_EQ(data["plans"][0]["precision"], name(plan.job.precision));
  EXPECT_EQ(data["plans"][0]["optimizer"], name(plan.job.optimizer));
}
