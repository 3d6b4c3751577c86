//===- PythonConfig.cpp - Configurations that are Python functions ----------===//

#include "tools/judge/PythonConfig.h"

#include "runtime/abi/ClosestWord.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace tbc::judge {

namespace {

/// An expression: its text, and if it is a call the callee and its keywords.
struct Expression {
  std::string text, callee;
  std::vector<std::pair<std::string, Expression>> keywords;
  bool isCall() const { return !callee.empty(); }
};

/// A statement of a function: `target = value`, or `return value` with the target "return".
struct Statement {
  std::string target;
  Expression value;
  /// Why it cannot be read, e.g. "line 3: 'if' decides at run time".
  std::string problem = {};
};

struct Function {
  std::string name;
  std::vector<Statement> statements;
};

/// Splits a file into functions and statements.
class Reader {
public:
  explicit Reader(const std::string &text) : text(text) {}

  /// Reads the whole file. Statements outside of functions go to the function "".
  std::vector<Function> read() {
    functions.push_back({"", {}});
    while (at < text.size())
      readLine();
    return functions;
  }

private:
  char peek() const { return at < text.size() ? text[at] : '\n'; }
  static bool isName(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  }
  std::string lineOf(size_t place) const {
    auto line = std::count(text.begin(), text.begin() + std::ptrdiff_t(place), '\n') + 1;
    return "line " + std::to_string(line);
  }
  void skipBlanks(bool acrossLines) {
    for (; at < text.size(); ++at) {
      if (text[at] == '#')
        at = std::min(text.find('\n', at), text.size());
      bool isBlank = peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\\';
      if (!isBlank && !(acrossLines && peek() == '\n'))
        return;
    }
  }
  std::string readName() {
    size_t begin = at;
    while (at < text.size() && isName(text[at]))
      ++at;
    return text.substr(begin, at - begin);
  }
  /// Skips a string with its quotes, single or triple.
  void skipString() {
    std::string quote = text.compare(at, 3, std::string(3, text[at])) == 0
                            ? std::string(3, text[at])
                            : std::string(1, text[at]);
    at += quote.size();
    while (at < text.size() && text.compare(at, quote.size(), quote) != 0)
      at += text[at] == '\\' ? 2 : 1;
    at = std::min(at + quote.size(), text.size());
  }
  /// Skips to the end of an expression: a comma or bracket of the enclosing call, or the line's
  /// end.
  void skipExpression(bool inCall) {
    for (int depth = 0; at < text.size();) {
      char c = text[at];
      if (c == '"' || c == '\'') {
        skipString();
        continue;
      }
      if (c == '#') {
        at = std::min(text.find('\n', at), text.size());
        continue;
      }
      bool isEnd = inCall ? c == ',' || c == ')' : c == '\n';
      if (depth == 0 && isEnd)
        return;
      depth += c == '(' || c == '[' || c == '{';
      depth -= c == ')' || c == ']' || c == '}';
      ++at;
    }
  }
  Expression readExpression(bool inCall) {
    skipBlanks(inCall);
    Expression expression;
    size_t begin = at;
    std::string name = readName();
    if (!name.empty() && peek() == '(') {
      ++at;
      expression.callee = name;
      readArguments(expression);
    }
    skipBlanks(inCall);
    bool isWhole = inCall ? peek() == ',' || peek() == ')' : peek() == '\n';
    if (!isWhole) { // an expression of operators, or a literal
      expression.callee.clear();
      expression.keywords.clear();
      skipExpression(inCall);
    }
    expression.text = text.substr(begin, at - begin);
    while (!expression.text.empty() &&
           std::isspace(static_cast<unsigned char>(expression.text.back())))
      expression.text.pop_back();
    return expression;
  }
  /// Reads the arguments of a call, behind its bracket. Those without a keyword are left out.
  void readArguments(Expression &call) {
    for (skipBlanks(true); at < text.size() && peek() != ')'; skipBlanks(true)) {
      size_t begin = at;
      std::string name = readName();
      skipBlanks(true);
      bool isKeyword = !name.empty() && peek() == '=' && text.compare(at, 2, "==") != 0;
      if (isKeyword) {
        ++at;
        call.keywords.push_back({name, readExpression(/*inCall=*/true)});
      } else {
        at = begin;
        skipExpression(/*inCall=*/true);
      }
      if (peek() == ',')
        ++at;
    }
    at = std::min(at + 1, text.size());
  }
  void readLine() {
    size_t begin = at;
    skipBlanks(/*acrossLines=*/false);
    if (peek() == '\n') {
      ++at;
      return;
    }
    const bool isInside = at > begin;
    size_t place = at;
    std::string word = readName();
    skipBlanks(/*acrossLines=*/false);
    if (peek() == ':') // a type: `config: Trainer.Config = base()`
      at = std::min(text.find_first_of("=\n", at), text.size());
    if (!isInside)
      functions.push_back({word == "def" ? readName() : "", {}});
    std::vector<Statement> &statements = functions.back().statements;
    static const std::set<std::string> decisions = {"if", "for", "while", "try", "match", "with"};
    if (isInside && word == "return") {
      statements.push_back({word, readExpression(false)});
    } else if (decisions.count(word) && !functions.back().name.empty()) {
      statements.push_back({"",
                            {},
                            lineOf(place) + ": '" + word + "' decides at run time; " +
                                "tbc judge reads assignments and calls alone: write the " +
                                "settings out"});
      skipExpression(false);
    } else if (!word.empty() && peek() == '=' && text.compare(at, 2, "==") != 0) {
      ++at;
      statements.push_back({word, readExpression(false)});
    } else { // an import, a docstring, an assertion, the head of a function
      at = place;
      skipExpression(false);
    }
  }

  const std::string &text;
  size_t at = 0;
  std::vector<Function> functions;
};

/// Follows the statements of a function.
class Evaluator {
public:
  Evaluator(const std::vector<Function> &functions, PythonSettings &settings)
      : functions(functions), settings(settings) {
    for (const Function &function : functions)
      if (function.name.empty())
        for (const Statement &statement : function.statements)
          constants.push_back(statement);
  }

  /// The first statement that cannot be read, or empty.
  std::string problem;

  /// Returns the settings that `function` returns.
  std::vector<Entry> run(const Function &function, int depth = 0) {
    std::vector<Statement> known = constants;
    std::vector<Entry> config;
    std::string name; // of the configuration
    for (const Statement &statement : function.statements) {
      const std::string &target = statement.target;
      if (!statement.problem.empty() && problem.empty())
        problem = statement.problem;
      if (target == "return") {
        if (statement.value.text != name)
          config = settingsOf(statement.value, known, depth);
        return config;
      }
      if (!name.empty() && target.rfind(name + ".", 0) == 0) {
        assign(config, target.substr(name.size() + 1), statement.value, known);
      } else if (target.find('.') == std::string::npos) {
        known.push_back(statement);
        // The variable that is returned is the configuration.
        if (function.statements.back().target == "return" &&
            function.statements.back().value.text == target) {
          name = target;
          config = settingsOf(statement.value, known, depth);
        }
      }
    }
    return config;
  }

private:
  const Function *functionOf(const std::string &name) const {
    for (const Function &function : functions)
      if (!name.empty() && function.name == name)
        return &function;
    return nullptr;
  }
  /// Returns the settings of an expression that is a configuration: a call of a function of this
  /// file or another, or of a class with its settings as keywords.
  std::vector<Entry> settingsOf(const Expression &value, const std::vector<Statement> &known,
                                int depth) {
    constexpr int mostCalls = 16; // of functions that call each other
    if (const Function *called = functionOf(value.callee); called && depth < mostCalls)
      return run(*called, depth + 1);
    if (value.keywords.empty())
      settings.elsewhere.push_back(value.isCall() ? value.callee : value.text);
    std::vector<Entry> entries;
    for (const auto &[key, part] : value.keywords)
      assign(entries, key, part, known);
    return entries;
  }
  /// Sets `key` and what is below it.
  static void assign(std::vector<Entry> &entries, const std::string &key, const Expression &value,
                     const std::vector<Statement> &known) {
    auto isReplaced = [&](const Entry &entry) {
      return entry.key == key || entry.key.rfind(key + ".", 0) == 0;
    };
    entries.erase(std::remove_if(entries.begin(), entries.end(), isReplaced), entries.end());
    if (!value.isCall() || value.keywords.empty())
      entries.push_back({key, literal(value.text, known)});
    for (const auto &[name, part] : value.keywords)
      assign(entries, key + "." + name, part, known);
  }
  /// Returns the value of a literal, or of a variable's last assignment.
  static std::string literal(const std::string &text, const std::vector<Statement> &known) {
    for (auto statement = known.rbegin(); statement != known.rend(); ++statement)
      if (statement->target == text)
        return statement->value.text == text ? text : literal(statement->value.text, {});
    bool isQuoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                    text.back() == text.front();
    return isQuoted ? text.substr(1, text.size() - 2) : text;
  }

  const std::vector<Function> &functions;
  PythonSettings &settings;
  std::vector<Statement> constants;
};

} // namespace

static bool isConfiguration(const Function &function) {
  return !function.name.empty() && !function.statements.empty() &&
         function.statements.back().target == "return";
}

/// Returns the functions that no other function of the file calls.
static std::vector<const Function *> outermost(const std::vector<Function> &functions) {
  std::set<std::string> called;
  for (const Function &function : functions)
    for (const Statement &statement : function.statements)
      called.insert(statement.value.callee);
  std::vector<const Function *> found;
  for (const Function &function : functions)
    if (isConfiguration(function) && !called.count(function.name))
      found.push_back(&function);
  return found;
}

Result<PythonSettings> pythonSettings(const std::string &text, const std::string &source) {
  size_t colon = source.rfind(".py:");
  const std::string file = colon == std::string::npos ? source : source.substr(0, colon + 3);
  const std::string asked = colon == std::string::npos ? "" : source.substr(colon + 4);
  const std::vector<Function> functions = Reader(text).read();
  const Function *chosen = nullptr;
  std::vector<std::string> names;
  for (const Function &function : functions) {
    if (!function.name.empty())
      names.push_back(function.name);
    if (!asked.empty() && function.name == asked)
      chosen = &function;
  }
  if (!asked.empty() && !chosen) {
    std::string nearest = closestWord(asked, names);
    return Error{ErrorCode::Usage,
                 file + " has no function " + asked +
                     (nearest.empty() ? "" : "; did you mean " + file + ":" + nearest + "?")};
  }
  std::vector<const Function *> candidates = outermost(functions);
  if (!chosen && candidates.size() != 1) {
    std::string list;
    for (const Function &function : functions)
      if (isConfiguration(function))
        list += (list.empty() ? "" : ", ") + function.name;
    return Error{ErrorCode::Usage, candidates.empty()
                                       ? file + " has no function that returns a configuration"
                                       : file + " has several configurations; name one, as in " +
                                             file + ":" + candidates.front()->name +
                                             ". There are " + list};
  }
  PythonSettings settings;
  Evaluator evaluator(functions, settings);
  settings.entries = evaluator.run(chosen ? *chosen : *candidates.front());
  if (!evaluator.problem.empty())
    return Error{ErrorCode::Usage, file + ", " + evaluator.problem};
  return settings;
}

} // namespace tbc::judge
