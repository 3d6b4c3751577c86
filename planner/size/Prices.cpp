//===- Prices.cpp - Reading prices ------------------------------------------===//

#include "planner/size/Prices.h"
#include "planner/devices/TomlReader.h"

namespace tbc::planner {

const Price *PriceList::find(const std::string &cluster) const {
  auto found = byCluster.find(cluster);
  return found == byCluster.end() ? nullptr : &found->second;
}

static PriceList readPrices(TomlReader &reader, const toml::table &root) {
  PriceList list;
  list.currency = reader.text(root, "", "currency");
  if (const toml::node *node = root.get("price"); !node || !node->is_table())
    reader.fail(root, "a table [price.CLUSTER] is missing");
  const toml::table &prices = reader.section(root, "", "price");
  for (auto &&[key, node] : prices) {
    const std::string cluster(key.str()), path = "price." + cluster;
    const toml::table &table = reader.section(prices, "price", cluster);
    list.byCluster[cluster] = {reader.number(table, path, "per_device_hour", Range::Positive),
                               reader.text(table, path, "date"),
                               reader.text(table, path, "source")};
    reader.closeTable(table, path);
  }
  reader.closeTable(root, "");
  return list;
}

Result<PriceList> parsePrices(const std::string &text, const std::string &source) {
  Result<toml::table> root = parseToml(text, source);
  if (!root)
    return root.error();
  TomlReader reader(source);
  PriceList list = readPrices(reader, *root);
  for (const std::string &error : {reader.error, reader.missing})
    if (!error.empty())
      return Error{ErrorCode::Usage, error};
  return list;
}

PriceList examplePrices() {
  PriceList list = *parsePrices(examplePricesText(), "the example prices");
  list.isExample = true;
  return list;
}

} // namespace tbc::planner
