//===- Prices.h - Prices of devices -----------------------------------------===//

#ifndef TBC_PLANNER_SIZE_PRICES_H
#define TBC_PLANNER_SIZE_PRICES_H

#include "runtime/abi/Status.h"

#include <map>
#include <string>

namespace tbc::planner {

struct Price {
  double perDeviceHour = 0;
  std::string date, source;
};

struct PriceList {
  std::string currency;
  std::map<std::string, Price> byCluster; // by the name of the cluster
  bool isExample = false;                 // the built-in list

  /// Returns the price of a cluster, or nullptr.
  const Price *find(const std::string &cluster) const;
};

/// Returns the built-in list as TOML.
const std::string &examplePricesText();
/// Returns the built-in list.
PriceList examplePrices();

/// Reads a list from TOML text. Errors: Usage, with `source`, the line and the key.
Result<PriceList> parsePrices(const std::string &text, const std::string &source);

} // namespace tbc::planner

#endif // TBC_PLANNER_SIZE_PRICES_H
