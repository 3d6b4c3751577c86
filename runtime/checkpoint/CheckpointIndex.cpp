//===- CheckpointIndex.cpp - The text of index.json ------------------------===//

#include "runtime/checkpoint/CheckpointIndex.h"
#include "runtime/abi/Sha256.h"

#include <iterator>
#include <nlohmann/json.hpp>

namespace tbc::checkpoint {

using Json = nlohmann::ordered_json;
using kernels::Arith;

static const char *const arithNames[] = {"native", "f64", "residue", "residue251"};
static_assert(std::size(arithNames) == kernels::numAriths, "one name per arithmetic");

std::string shardName(int64_t rank) {
  char text[64];
  std::snprintf(text, sizeof text, "rank-%05lld.safetensors", static_cast<long long>(rank));
  return text;
}

std::string residualName(const std::string &place) { return "gradient residual of " + place; }

std::vector<int64_t> placeIn(const program::Mesh &mesh, const program::Piece &piece, int64_t rank) {
  std::vector<int64_t> coordinates = mesh.coordinates(rank), place;
  for (const program::PieceDim &dim : piece.dims)
    for (const program::PieceSegment &segment : dim)
      for (const program::PieceFactor &factor : segment)
        place.push_back(program::groupIndex(mesh, factor.axes, coordinates));
  place.push_back(program::groupIndex(mesh, piece.flat, coordinates));
  return place;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static Json jsonOf(const std::vector<program::AxisRef> &axes) {
  Json list = Json::array();
  for (const program::AxisRef &axis : axes)
    list.push_back({axis.axis, axis.pre, axis.size});
  return list;
}

static Json jsonOf(const program::Piece &piece) {
  Json dims = Json::array();
  for (const program::PieceDim &dim : piece.dims) {
    Json segments = Json::array();
    for (const program::PieceSegment &segment : dim) {
      Json factors = Json::array();
      for (const program::PieceFactor &factor : segment)
        factors.push_back({{"size", factor.size}, {"axes", jsonOf(factor.axes)}});
      segments.push_back(factors);
    }
    dims.push_back(segments);
  }
  return {{"dims", dims}, {"flat", jsonOf(piece.flat)}};
}

std::string writeIndex(const Index &index) {
  Json mesh = Json::array(), shards = Json::array(), tensors = Json::array();
  for (const program::MeshAxis &axis : index.mesh.axes)
    mesh.push_back({axis.name, axis.size});
  for (const ShardInfo &shard : index.shards)
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"sha256", shard.sha256}});
  for (const StoredTensor &tensor : index.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"role", std::string(program::name(tensor.role))},
                       {"dtype", std::string(kernels::name(tensor.type.dtype))},
                       {"shape", tensor.type.shape},
                       {"piece", jsonOf(tensor.piece)},
                       {"ranks", tensor.writers}});
  Json json = {{"format", "tbc-checkpoint"},
               {"version", indexVersion},
               {"step", index.progress.step},
               {"global_batch", index.progress.globalBatch},
               {"data_seed", index.progress.dataSeed},
               {"shuffled", index.progress.isShuffled},
               {"arithmetic", arithNames[int(index.arith)]},
               {"mesh", mesh},
               {"shards", shards},
               {"tensors", tensors}};
  if (index.progress.stepsBefore > 0)
    json["global_batch_since"] = {{"step", index.progress.stepsBefore},
                                  {"epoch", index.progress.epochsBefore},
                                  {"sample", index.progress.samplesBefore}};
  if (!index.progress.run.empty())
    json["run"] = index.progress.run;
  if (!index.progress.model.empty())
    json["model"] = index.progress.model;
  if (!index.progress.optimizer.empty())
    json["optimizer"] = index.progress.optimizer;
  if (!index.progress.residualsOf.empty())
    json["gradient_residuals"] = index.progress.residualsOf;
  std::string text = json.dump(1);
  text.resize(text.size() - 2); // "\n}"
  return text + ",\n \"sha256\": \"" + sha256Hex(text) + "\"\n}\n";
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

// The hash is checked first, so the text usually comes from writeIndex. All values are checked all
// the same, because an index may be made by hand.
namespace {

struct Malformed {
  std::string why;
};

const Json &field(const Json &json, const char *key) {
  if (!json.is_object() || !json.contains(key))
    throw Malformed{std::string("\"") + key + "\" is missing"};
  return json.at(key);
}

int64_t number(const Json &json, int64_t least, int64_t most = int64_t(1) << 48) {
  if (!json.is_number_integer() || json.get<int64_t>() < least || json.get<int64_t>() > most)
    throw Malformed{"a number is out of bounds: " + json.dump()};
  return json.get<int64_t>();
}

std::string text(const Json &json) {
  if (!json.is_string())
    throw Malformed{"a text is expected: " + json.dump()};
  return json.get<std::string>();
}

const Json &list(Json &&) = delete; // it would not outlive the call
const Json &list(const Json &json) {
  if (!json.is_array())
    throw Malformed{"a list is expected"};
  return json;
}

std::vector<program::AxisRef> axesOf(const Json &json, const program::Mesh &mesh) {
  std::vector<program::AxisRef> axes;
  for (const Json &entry : list(json)) {
    if (list(entry).size() != 3)
      throw Malformed{"an axis is malformed"};
    program::AxisRef axis;
    axis.axis = int(number(entry[0], 0, int64_t(mesh.axes.size()) - 1));
    axis.pre = number(entry[1], 1);
    axis.size = number(entry[2], 1);
    axes.push_back(axis);
  }
  return axes;
}

program::Piece pieceOf(const Json &json, const program::Mesh &mesh) {
  program::Piece piece;
  for (const Json &dim : list(field(json, "dims"))) {
    piece.dims.emplace_back();
    for (const Json &segment : list(dim)) {
      piece.dims.back().emplace_back();
      for (const Json &factor : list(segment))
        piece.dims.back().back().push_back(
            {number(field(factor, "size"), 1), axesOf(field(factor, "axes"), mesh)});
    }
  }
  piece.flat = axesOf(field(json, "flat"), mesh);
  return piece;
}

StoredTensor tensorOf(const Json &json, const program::Mesh &mesh, size_t numShards) {
  StoredTensor tensor;
  tensor.name = text(field(json, "name"));
  std::string role = text(field(json, "role"));
  int r = 0;
  while (r < program::numRoles && program::name(program::Role(r)) != role)
    ++r;
  std::optional<kernels::DType> dtype = kernels::parseStorableDType(text(field(json, "dtype")));
  if (r == program::numRoles || !dtype)
    throw Malformed{"tensor \"" + tensor.name + "\" has an unknown role or type"};
  tensor.role = program::Role(r);
  tensor.type.dtype = *dtype;
  int64_t elements = 1;
  for (const Json &size : list(field(json, "shape"))) {
    tensor.type.shape.push_back(number(size, 0));
    if (__builtin_mul_overflow(elements, tensor.type.shape.back(), &elements) ||
        elements > int64_t(1) << 40)
      throw Malformed{"tensor \"" + tensor.name + "\" is too large"};
  }
  tensor.piece = pieceOf(field(json, "piece"), mesh);
  if (std::string why = program::whyInvalid(mesh, tensor.piece, tensor.type.shape); !why.empty())
    throw Malformed{"tensor \"" + tensor.name + "\": " + why};
  for (const Json &rank : list(field(json, "ranks")))
    tensor.writers.push_back(number(rank, 0, int64_t(numShards) - 1));
  return tensor;
}

Index indexOf(const Json &json) {
  Index index;
  if (text(field(json, "format")) != "tbc-checkpoint")
    throw Malformed{"it is no checkpoint of tbc"};
  if (int64_t version = number(field(json, "version"), 0); version != indexVersion)
    throw Malformed{"it has version " + std::to_string(version) + "; this tbc reads version " +
                    std::to_string(indexVersion)};
  index.progress.step = number(field(json, "step"), 0);
  index.progress.globalBatch = number(field(json, "global_batch"), 1);
  const Json &seed = field(json, "data_seed");
  if (!seed.is_number_unsigned())
    throw Malformed{"\"data_seed\" must be a number"};
  index.progress.dataSeed = seed.get<uint64_t>();
  index.progress.isShuffled = field(json, "shuffled") == true;
  if (json.contains("global_batch_since")) {
    const Json &since = field(json, "global_batch_since");
    index.progress.stepsBefore = number(field(since, "step"), 1, index.progress.step);
    index.progress.epochsBefore = number(field(since, "epoch"), 0, index.progress.stepsBefore);
    index.progress.samplesBefore = number(field(since, "sample"), 0);
  }
  int64_t samples = 0; // of its steps; a resumed run adds to them
  if (__builtin_mul_overflow(index.progress.step, index.progress.globalBatch, &samples) ||
      __builtin_add_overflow(index.progress.samplesBefore, samples, &samples))
    throw Malformed{"its steps took too many samples"};
  // Missing in checkpoints of earlier versions, which belong to no run and fit any model.
  if (json.contains("run"))
    index.progress.run = text(json["run"]);
  if (json.contains("model"))
    index.progress.model = text(json["model"]);
  if (json.contains("optimizer"))
    index.progress.optimizer = text(json["optimizer"]);
  if (json.contains("gradient_residuals"))
    index.progress.residualsOf = text(json["gradient_residuals"]);
  std::string arith = text(field(json, "arithmetic"));
  int a = 0;
  while (a < kernels::numAriths && arith != arithNames[a])
    ++a;
  if (a == kernels::numAriths)
    throw Malformed{"there is no arithmetic " + arith};
  index.arith = Arith(a);
  constexpr int64_t maxRanks = 1 << 20;
  int64_t ranks = 1;
  for (const Json &axis : list(field(json, "mesh"))) {
    if (list(axis).size() != 2)
      throw Malformed{"an axis is malformed"};
    ranks *= number(axis[1], 1, maxRanks / ranks);
    index.mesh.axes.push_back({text(axis[0]), axis[1].get<int64_t>()});
  }
  for (const Json &shard : list(field(json, "shards"))) {
    ShardInfo info;
    info.file = text(field(shard, "file"));
    if (info.file.find('/') != std::string::npos)
      throw Malformed{"a shard lies in another folder"};
    info.bytes = number(field(shard, "bytes"), 0);
    info.sha256 = text(field(shard, "sha256"));
    index.shards.push_back(info);
  }
  if (int64_t(index.shards.size()) != index.mesh.numRanks())
    throw Malformed{"it has " + std::to_string(index.shards.size()) + " shards for " +
                    std::to_string(index.mesh.numRanks()) + " ranks"};
  for (const Json &tensor : list(field(json, "tensors")))
    index.tensors.push_back(tensorOf(tensor, index.mesh, index.shards.size()));
  return index;
}

} // namespace

Result<Index> readIndex(std::string_view content) {
  auto wrong = [](const std::string &why) { return Error{ErrorCode::CheckpointUnreadable, why}; };
  size_t end = content.rfind(",\n \"sha256\": \"");
  if (end == std::string_view::npos ||
      content.substr(end) != ",\n \"sha256\": \"" + sha256Hex(content.substr(0, end)) + "\"\n}\n")
    return wrong("it does not end in the hash of its content");
  Json json = Json::parse(content, nullptr, false);
  if (json.is_discarded())
    return wrong("it is no JSON");
  try {
    return indexOf(json);
  } catch (const Malformed &malformed) {
    return wrong(malformed.why);
  }
}

} // namespace tbc::checkpoint
