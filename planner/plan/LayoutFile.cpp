//===- LayoutFile.cpp - Placements and the layout in plan.json ------------===//

#include "planner/plan/LayoutFile.h"
#include "planner/plan/Plan.h"
#include "planner/support/IdList.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tbc::planner {

using Json = nlohmann::json;

static constexpr int64_t maxCount = int64_t(1) << 60;

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Returns `count` items as an array, also if there are none.
template <typename Items, typename ToJson> static Json listOf(const Items &items, ToJson toJson) {
  Json list = Json::array();
  for (const auto &item : items)
    list.push_back(toJson(item));
  return list;
}

static Json dimJson(const DimAxes &dim) {
  if (dim.factors.empty())
    return dim.axes;
  return {{"segments", dim.segments}, {"factors", dim.factors}};
}

void putPlacement(const OpPlacement &placement, Json &json) {
  auto tensors = [](const std::vector<std::vector<DimAxes>> &all) {
    return listOf(all, [](const auto &dims) { return listOf(dims, dimJson); });
  };
  json["operands"] = tensors(placement.operands);
  json["results"] = tensors(placement.results);
  if (std::any_of(placement.partial.begin(), placement.partial.end(),
                  [](const AxisNames &axes) { return !axes.empty(); }))
    json[placement.isMaximum ? "partial_max" : "partial"] = placement.partial;
}

static Json splitJson(const DimSplit &dim) {
  if (dim.segments.empty())
    return dim.axes;
  auto factor = [](const SplitFactor &f) { return Json{{"size", f.size}, {"axes", f.axes}}; };
  return {{"segments", listOf(dim.segments, [&](const auto &s) { return listOf(s, factor); })}};
}

static Json placementJson(const TensorPlacement &placement) {
  Json json = {{"dims", listOf(placement.dims, splitJson)}};
  if (!placement.partial.empty())
    json[placement.isMaximum ? "partial_max" : "partial"] = placement.partial;
  if (!placement.flat.empty()) {
    json["flat"] = placement.flat;
    json["padding"] = placement.padding;
  }
  return json;
}

static Json tensorJson(const LayoutTensor &tensor) {
  Json json = placementJson(tensor.placement);
  json["shape"] = tensor.shape;
  json["dtype"] = tensor.dtype;
  return json;
}

static Json parametersJson(const LayoutParameters &group) {
  Json json = {{"names", compressIds(group.names)},
               {"shape", group.shape},
               {"dtype", group.dtype},
               {"trained", group.isTrained},
               {"stored", placementJson(group.stored)},
               {"used", placementJson(group.used)},
               {"gather", {{"unit", "parameter"}, {"lifetime", name(group.lifetime)}}}};
  if (!group.summed.empty())
    json["summed"] = group.summed;
  if (group.isTrained) {
    json["gradient"] = placementJson(group.gradient);
    json["optimizer_state"] = placementJson(group.state);
    if (group.stateBytes)
      json["state_bytes"] = *group.stateBytes;
  }
  return json;
}

static Json marksJson(const LayoutMarks &marks) {
  return {{"modules", compressIds(marks.modules)}, {"ops", marks.ops}, {"of", marks.of}};
}

Json layoutJson(const Layout &layout) {
  auto axis = [](const LayoutAxis &a) {
    return Json{{"axis", a.axis},
                {"size", a.size},
                {"stride", a.stride},
                {"nodes", a.nodes},
                {"per_node", a.perNode}};
  };
  auto named = [](const LayoutTensors &tensors) {
    Json json = tensorJson(tensors.tensor);
    json["names"] = compressIds(tensors.names);
    return json;
  };
  auto boundary = [](const LayoutBoundary &b) {
    return Json{{"block", b.block},
                {"repeats", {b.first, b.last}},
                {"inputs", listOf(b.inputs, tensorJson)},
                {"outputs", listOf(b.outputs, tensorJson)}};
  };
  auto module = [](const LayoutModules &m) {
    return Json{{"names", compressIds(m.names)},
                {"inputs", listOf(m.inputs, tensorJson)},
                {"outputs", listOf(m.outputs, tensorJson)}};
  };
  auto chunk = [](const LayoutChunk &c) {
    return Json{{"chunk", c.chunk},
                {"stage", c.stage},
                {"first_op", c.firstOp},
                {"modules", compressIds(c.modules)},
                {"parameters", compressIds(c.parameters)}};
  };
  auto collective = [](const LayoutCollective &c) {
    return Json{{"kind", c.kind},     {"purpose", c.purpose}, {"cause", c.cause}, {"axes", c.axes},
                {"stages", c.stages}, {"bytes", c.bytes},     {"count", c.count}};
  };
  return {{"decisions", layout.decisions},
          {"axes", listOf(layout.axes, axis)},
          {"inputs", listOf(layout.inputs, named)},
          {"states", listOf(layout.states, named)},
          {"parameters", listOf(layout.parameters, parametersJson)},
          {"initializers", layout.initializers},
          {"boundaries", listOf(layout.boundaries, boundary)},
          {"modules", listOf(layout.modules, module)},
          {"chunks", listOf(layout.chunks, chunk)},
          {"recompute", listOf(layout.recompute, marksJson)},
          {"offload", listOf(layout.offload, marksJson)},
          {"collectives", listOf(layout.collectives, collective)}};
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

class Reader {
public:
  explicit Reader(KeyProblem &problem) : problem(problem) {}

  AxisNames axes(const Json &json, const std::string &path) {
    AxisNames names;
    if (!json.is_array()) {
      problem.report(path, "must be a list of axes");
      return names;
    }
    for (const Json &item : json)
      if (item.is_string())
        names.push_back(item.get<std::string>());
      else
        problem.report(path, "must be a list of axes");
    return names;
  }

  /// Calls `read` for every item of the array `json`.
  template <typename Read> void each(const Json &json, const std::string &path, Read read) {
    if (!json.is_array())
      return problem.report(path, "must be a list");
    for (size_t i = 0; i < json.size(); ++i)
      read(json[i], path + "[" + std::to_string(i) + "]");
  }

  DimAxes dim(const Json &json, const std::string &path) {
    DimAxes result;
    if (!json.is_object()) {
      result.axes = axes(json, path);
      return result;
    }
    JsonObject object(json, path, problem);
    result.segments = int(object.integer("segments", 1, 1 << 20));
    object.forEach("factors", [&](const Json &item, const std::string &where) {
      result.factors.push_back(axes(item, where));
    });
    return result;
  }

  DimSplit split(const Json &json, const std::string &path) {
    DimSplit result;
    if (!json.is_object()) {
      result.axes = axes(json, path);
      return result;
    }
    JsonObject object(json, path, problem);
    object.forEach("segments", [&](const Json &item, const std::string &where) {
      result.segments.emplace_back();
      each(item, where, [&](const Json &factor, const std::string &at) {
        JsonObject entry(factor, at, problem);
        SplitFactor f;
        f.size = entry.integer("size", 1, maxCount);
        f.axes = axes(entry.get("axes"), entry.at("axes"));
        result.segments.back().push_back(std::move(f));
      });
    });
    return result;
  }

  TensorPlacement placement(JsonObject &object) {
    TensorPlacement result;
    object.forEach("dims", [&](const Json &item, const std::string &path) {
      result.dims.push_back(split(item, path));
    });
    result.isMaximum = object.has("partial_max");
    if (const char *key = result.isMaximum ? "partial_max" : "partial"; object.has(key))
      result.partial = axes(object.get(key), object.at(key));
    if (object.has("flat")) {
      result.flat = axes(object.get("flat"), object.at("flat"));
      result.padding = object.integer("padding", 0, maxCount);
    }
    return result;
  }

  TensorPlacement placement(JsonObject &parent, const char *key) {
    JsonObject object(parent.get(key), parent.at(key), problem);
    return placement(object);
  }

  std::vector<int64_t> sizes(JsonObject &object, const char *key) {
    std::vector<int64_t> all;
    object.forEach(key, [&](const Json &item, const std::string &path) {
      if (item.is_number_unsigned() && item <= maxCount)
        all.push_back(item.get<int64_t>());
      else
        problem.report(path, "must be a number from 0");
    });
    return all;
  }

  LayoutTensor tensor(JsonObject &object) {
    LayoutTensor result{sizes(object, "shape"), object.text("dtype"), placement(object)};
    return result;
  }

  std::vector<LayoutTensor> tensors(JsonObject &object, const char *key) {
    std::vector<LayoutTensor> all;
    object.forEach(key, [&](const Json &item, const std::string &path) {
      JsonObject entry(item, path, problem);
      all.push_back(tensor(entry));
    });
    return all;
  }

  LayoutParameters parameters(JsonObject &object) {
    LayoutParameters group;
    group.names = object.ids("names");
    group.shape = sizes(object, "shape");
    group.dtype = object.text("dtype");
    group.isTrained = object.flag("trained");
    if (object.has("summed"))
      group.summed = sizes(object, "summed");
    group.stored = placement(object, "stored");
    group.used = placement(object, "used");
    if (group.isTrained) {
      group.gradient = placement(object, "gradient");
      group.state = placement(object, "optimizer_state");
      constexpr int64_t mostStateBytes = 64;
      if (object.has("state_bytes"))
        group.stateBytes = object.integer("state_bytes", 0, mostStateBytes);
    }
    JsonObject gather(object.get("gather"), object.at("gather"), problem);
    gather.word("unit", {"parameter"});
    const GatherLifetime all[] = {GatherLifetime::Always, GatherLifetime::Step,
                                  GatherLifetime::ForwardAndBackward, GatherLifetime::Use};
    std::vector<std::string> words;
    for (GatherLifetime lifetime : all)
      words.push_back(name(lifetime));
    const std::string word = gather.word("lifetime", words);
    for (GatherLifetime lifetime : all)
      if (word == name(lifetime))
        group.lifetime = lifetime;
    return group;
  }

  std::vector<LayoutMarks> marks(JsonObject &object, const char *key) {
    std::vector<LayoutMarks> all;
    object.forEach(key, [&](const Json &item, const std::string &path) {
      JsonObject entry(item, path, problem);
      all.push_back({entry.ids("modules"), entry.integer("ops", 1, maxCount),
                     entry.integer("of", 1, maxCount)});
    });
    return all;
  }

  LayoutCollective collective(JsonObject &object) {
    LayoutCollective line;
    line.kind = object.text("kind");
    line.purpose = object.text("purpose");
    line.cause = object.text("cause");
    line.axes = axes(object.get("axes"), object.at("axes"));
    object.forEach("stages", [&](const Json &item, const std::string &path) {
      if (item.is_number_unsigned() && item < (1 << 20))
        line.stages.push_back(item.get<int>());
      else
        problem.report(path, "must be the number of a stage");
    });
    line.bytes = object.integer("bytes", 0, maxCount);
    line.count = object.integer("count", 1, maxCount);
    return line;
  }

  Layout layout(JsonObject &object);

private:
  KeyProblem &problem;
};

} // namespace

Layout Reader::layout(JsonObject &object) {
  Layout result;
  auto each = [&](const char *key, auto read) {
    object.forEach(key, [&](const Json &item, const std::string &path) {
      JsonObject entry(item, path, problem);
      read(entry);
    });
  };
  result.decisions = object.text("decisions");
  if (result.decisions.empty())
    problem.report(object.at("decisions"), "is empty");
  each("axes", [&](JsonObject &entry) {
    result.axes.push_back({entry.text("axis"), entry.integer("size", 1, 1 << 20),
                           entry.integer("stride", 1, 1 << 20), entry.integer("nodes", 1, 1 << 20),
                           entry.integer("per_node", 1, 1 << 20)});
  });
  for (auto [key, into] : {std::pair("inputs", &result.inputs), {"states", &result.states}})
    each(key, [&, into = into](JsonObject &entry) {
      into->push_back({entry.ids("names"), tensor(entry)});
    });
  each("parameters", [&](JsonObject &entry) { result.parameters.push_back(parameters(entry)); });
  const Json &initializers = object.get("initializers");
  if (!initializers.is_object())
    problem.report(object.at("initializers"), "must be an object");
  else {
    JsonObject names(initializers, object.at("initializers"), problem);
    for (const auto &[path, value] : initializers.items())
      result.initializers[path] = names.text(path);
  }
  each("boundaries", [&](JsonObject &entry) {
    const std::vector<int64_t> repeats = sizes(entry, "repeats");
    if (repeats.size() != 2)
      return problem.report(entry.at("repeats"), "must be the first and the last of them");
    result.boundaries.push_back(LayoutBoundary{entry.text("block"), repeats[0], repeats[1],
                                               tensors(entry, "inputs"),
                                               tensors(entry, "outputs")});
  });
  if (object.has("modules"))
    each("modules", [&](JsonObject &entry) {
      result.modules.push_back(
          {entry.ids("names"), tensors(entry, "inputs"), tensors(entry, "outputs")});
    });
  each("chunks", [&](JsonObject &entry) {
    result.chunks.push_back({int(entry.integer("chunk", 0, 1 << 20)),
                             int(entry.integer("stage", 0, 1 << 20)), entry.text("first_op"),
                             entry.ids("modules"), entry.ids("parameters")});
  });
  result.recompute = marks(object, "recompute");
  result.offload = marks(object, "offload");
  each("collectives", [&](JsonObject &entry) { result.collectives.push_back(collective(entry)); });
  return result;
}

OpPlacement readPlacement(JsonObject &object, KeyProblem &problem) {
  Reader reader(problem);
  OpPlacement placement;
  for (auto [key, tensors] :
       {std::pair("operands", &placement.operands), std::pair("results", &placement.results)})
    object.forEach(key, [&, into = tensors](const Json &item, const std::string &path) {
      into->emplace_back();
      reader.each(item, path, [&](const Json &dim, const std::string &at) {
        into->back().push_back(reader.dim(dim, at));
      });
    });
  placement.partial.resize(placement.results.size());
  placement.isMaximum = object.has("partial_max");
  const char *key = placement.isMaximum ? "partial_max" : "partial";
  if (!object.has(key))
    return placement;
  placement.partial.clear();
  object.forEach(key, [&](const Json &item, const std::string &path) {
    placement.partial.push_back(reader.axes(item, path));
  });
  if (placement.partial.size() != placement.results.size())
    problem.report(object.at(key), "must have one entry per result");
  return placement;
}

Layout readLayout(const Json &json, KeyProblem &problem) {
  JsonObject object(json, "layout", problem);
  return Reader(problem).layout(object);
}

} // namespace tbc::planner
