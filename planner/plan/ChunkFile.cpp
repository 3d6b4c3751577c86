//===- ChunkFile.cpp - The seconds of chunks in plan.json ------------------===//

#include "planner/plan/ChunkFile.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>

namespace tbc::planner {

using Json = nlohmann::json;

static Json workJson(const WorkSum &work) {
  Json json = {{"name", work.name}, {"count", work.count}, {"seconds", work.seconds}};
  if (!work.axes.empty())
    json["axes"] = work.axes;
  if (work.bytes > 0)
    json["bytes"] = work.bytes;
  return json;
}

static Json partsJson(const ChunkSeconds &chunk) {
  Json parts = Json::object();
  for (const NamedStagePart &known : stageParts()) {
    const std::vector<WorkSum> &work = chunk.of(known.part);
    if (chunk.seconds.*known.part == 0 && work.empty())
      continue;
    Json list = Json::array();
    for (const WorkSum &sum : work)
      list.push_back(workJson(sum));
    parts[known.name] = {{"seconds", chunk.seconds.*known.part}, {"work", list}};
  }
  return parts;
}

Json chunksJson(const std::vector<ChunkSeconds> &chunks) {
  Json entries = Json::array();
  std::vector<size_t> firstOf; // the first chunk of each entry
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    size_t entry = 0;
    while (entry < firstOf.size() && !(chunks[firstOf[entry]] == chunks[chunk]))
      ++entry;
    if (entry == firstOf.size()) {
      firstOf.push_back(chunk);
      entries.push_back({{"chunks", Json::array()}, {"parts", partsJson(chunks[chunk])}});
    }
    entries[entry]["chunks"].push_back(chunk);
  }
  return entries;
}

static ChunkSeconds readParts(JsonObject &parts, KeyProblem &problem) {
  constexpr int64_t maxCount = int64_t(1) << 60;
  ChunkSeconds chunk;
  for (const NamedStagePart &known : stageParts()) {
    if (!parts.has(known.name))
      continue;
    JsonObject part(parts.get(known.name), parts.at(known.name), problem);
    chunk.seconds.*known.part = part.number("seconds");
    part.forEach("work", [&](const Json &item, const std::string &path) {
      JsonObject object(item, path, problem);
      WorkSum work;
      work.name = object.text("name");
      if (object.has("axes"))
        work.axes = object.text("axes");
      work.count = object.integer("count", 0, maxCount);
      work.bytes = object.numberOr("bytes", 0);
      work.seconds = object.number("seconds");
      chunk.work[known.name].push_back(std::move(work));
    });
  }
  return chunk;
}

std::vector<ChunkSeconds> readChunks(JsonObject &prediction, int64_t count, KeyProblem &problem) {
  std::map<int64_t, ChunkSeconds> byChunk;
  prediction.forEach("chunks", [&](const Json &item, const std::string &path) {
    JsonObject entry(item, path, problem);
    JsonObject parts(entry.get("parts"), entry.at("parts"), problem);
    const ChunkSeconds seconds = readParts(parts, problem);
    entry.forEach("chunks", [&](const Json &number, const std::string &where) {
      if (!number.is_number_integer() || number < 0 || number >= count)
        return problem.report(where, "must be the number of a chunk");
      if (!byChunk.emplace(number.get<int64_t>(), seconds).second)
        problem.report(where, "names chunk " + number.dump() + " twice");
    });
  });
  if (int64_t(byChunk.size()) != count)
    problem.report(prediction.at("chunks"), "has " + std::to_string(byChunk.size()) + " of " +
                                                std::to_string(count) + " chunks");
  std::vector<ChunkSeconds> chunks;
  for (auto &[number, seconds] : byChunk)
    chunks.push_back(std::move(seconds));
  return chunks;
}

std::string whyWorkIsInconsistent(const std::vector<ChunkSeconds> &chunks) {
  constexpr double roundingFraction = 1e-9;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    for (const NamedStagePart &known : stageParts()) {
      const double seconds = chunks[chunk].seconds.*known.part;
      double sum = 0;
      for (const WorkSum &work : chunks[chunk].of(known.part))
        sum += work.seconds;
      if (std::abs(sum - seconds) > roundingFraction * std::max(sum, seconds))
        return "key \"prediction.chunks\": part \"" + std::string(known.name) + "\" of chunk " +
               std::to_string(chunk) + " has " + Json(seconds).dump() +
               " seconds, but its work adds up to " + Json(sum).dump();
    }
  return "";
}

} // namespace tbc::planner
