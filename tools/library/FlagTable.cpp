//===- FlagTable.cpp - The flags of all subcommands as data -----------------===//

#include "tools/library/FlagTable.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace tbc::cli {

using Json = nlohmann::ordered_json;

/// Returns the kind of an option's values, by the type name that help shows.
static std::string kindOf(const CLI::Option &option) {
  if (option.get_items_expected_max() == 0)
    return "switch";
  const std::string type = option.get_type_name();
  if (type.rfind("INT", 0) == 0 || type.rfind("UINT", 0) == 0)
    return "integer";
  return type.rfind("FLOAT", 0) == 0 ? "number" : "text";
}

/// Adds the options of `app` and its unnamed groups to `flags` or `positionals`.
static void addOptions(const CLI::App &app, Json &flags, Json &positionals) {
  for (const CLI::Option *option : app.get_options()) {
    if (option->get_lnames() == std::vector<std::string>{"help"})
      continue;
    Json entry;
    const bool isFlag = !option->get_lnames().empty();
    entry["name"] = isFlag ? option->get_lnames().front() : option->get_single_name();
    entry["kind"] = kindOf(*option);
    entry["isList"] = option->get_items_expected_max() > 1;
    entry["help"] = option->get_description();
    (isFlag ? flags : positionals).push_back(entry);
  }
  for (const CLI::App *group : app.get_subcommands({}))
    if (group->get_name().empty())
      addOptions(*group, flags, positionals);
}

std::string flagTable(const CLI::App &app) {
  Json table = Json::object();
  for (const CLI::App *command : app.get_subcommands({})) {
    Json flags = Json::array(), positionals = Json::array();
    addOptions(*command, flags, positionals);
    table[command->get_name()] = {{"help", command->get_description()},
                                  {"positionals", std::move(positionals)},
                                  {"flags", std::move(flags)}};
  }
  return table.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace tbc::cli
