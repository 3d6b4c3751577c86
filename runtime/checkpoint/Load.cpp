//===- Load.cpp - Reading a checkpoint -------------------------------------===//

#include "runtime/abi/Sha256.h"
#include "runtime/checkpoint/CheckpointIndex.h"
#include "runtime/comm/Wire.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace tbc::checkpoint {

using kernels::Tensor;
using program::Role;

Error Checkpoint::damaged(const std::string &why) const {
  return {ErrorCode::CheckpointUnreadable, why};
}

Result<Checkpoint> Checkpoint::open(const std::string &path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  std::string indexPath = path + "/" + indexFile;
  auto file = data::MappedFile::open(indexPath, ErrorCode::CheckpointUnreadable);
  if (!file)
    return checkpoint.damaged(file.error().message);
  Result<Index> index = readIndex(file->text());
  if (!index)
    return checkpoint.damaged(indexPath + ": " + index.error().message);
  checkpoint.where = index->progress;
  checkpoint.heldIn = index->arith;
  checkpoint.mesh = index->mesh;
  checkpoint.stored = std::move(index->tensors);
  for (const ShardInfo &shard : index->shards)
    checkpoint.shards.push_back({shard.file, shard.sha256, shard.bytes, nullptr});
  return checkpoint;
}

Result<std::shared_ptr<SafetensorsFile>> Checkpoint::shard(int64_t rank) {
  Shard &shard = shards[size_t(rank)];
  if (shard.content)
    return shard.content;
  std::string file = path + "/" + shard.file;
  auto named = [&](const std::string &why) {
    std::string tensors = damagedTensors(file);
    return damaged(why + (tensors.empty() ? "" : ", in " + tensors));
  };
  Result<SafetensorsFile> content = readSafetensors(file);
  if (!content)
    return named(content.error().message);
  if (int64_t(content->file.size()) != shard.bytes ||
      sha256Hex(content->file.text()) != shard.sha256)
    return named(file + " is damaged: it has not the bytes that were written");
  shard.content = std::make_shared<SafetensorsFile>(std::move(*content));
  return shard.content;
}

Result<Tensor> Checkpoint::piece(const std::string &name, const kernels::TensorType &whole,
                                 const std::vector<int64_t> &indices,
                                 const kernels::TensorType &local) {
  auto tensor = std::find_if(stored.begin(), stored.end(),
                             [&](const StoredTensor &t) { return t.name == name; });
  if (tensor == stored.end())
    return Error{ErrorCode::Usage,
                 path + " has no tensor \"" + name + "\"; it is of another model or optimizer"};
  if (tensor->type != whole)
    return Error{ErrorCode::Usage, path + " has \"" + name + "\" as " + toString(tensor->type) +
                                       ", the program as " + toString(whole)};
  size_t width = size_t(comm::wireWidth(whole.dtype, heldIn));
  std::string dtype = storedType(whole.dtype, heldIn);
  // The destination of each element, by its index in the whole tensor.
  std::vector<int64_t> wanted(size_t(kernels::numElements(whole.shape)), -1);
  size_t numMissing = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0) {
      wanted[size_t(indices[i])] = int64_t(i);
      ++numMissing;
    }
  }
  std::vector<unsigned char> bytes(indices.size() * width, 0);
  for (int64_t rank : tensor->writers) {
    std::vector<int64_t> owned = program::ownedIndices(mesh, tensor->piece, mesh.coordinates(rank));
    bool isNeeded = std::any_of(owned.begin(), owned.end(), [&](int64_t index) {
      return index >= 0 && wanted[size_t(index)] >= 0;
    });
    if (!isNeeded)
      continue;
    auto content = shard(rank);
    if (!content)
      return content.error();
    auto entry = (*content)->entries.find(name);
    if (entry == (*content)->entries.end() || entry->second.dtype != dtype ||
        entry->second.bytes != int64_t(owned.size() * width))
      return damaged(path + "/" + shards[size_t(rank)].file + " does not have \"" + name +
                     "\" as the index says");
    const unsigned char *elements = (*content)->elements(entry->second);
    for (size_t i = 0; i < owned.size(); ++i) {
      if (owned[i] < 0 || wanted[size_t(owned[i])] < 0)
        continue;
      std::memcpy(&bytes[size_t(wanted[size_t(owned[i])]) * width], elements + i * width, width);
      wanted[size_t(owned[i])] = -1;
      --numMissing;
    }
  }
  if (numMissing > 0)
    return damaged(path + " does not hold all of \"" + name + "\"");
  return comm::decode(local, heldIn, bytes.data());
}

Status load(Checkpoint &checkpoint, const program::Program &program, runtime::Executor &executor,
            kernels::Arith arith) {
  if (checkpoint.arith() != arith)
    return Error{ErrorCode::Usage, "the checkpoint was made with another --arith"};
  std::vector<int64_t> coordinates = program.mesh.coordinates(executor.rank());
  for (const program::Slot &slot : program.stages[executor.stage()].slots) {
    if (slot.role != Role::Parameter && slot.role != Role::State &&
        slot.role != Role::OptimizerState)
      continue;
    const program::GlobalTensor &tensor = program.tensors[slot.tensor];
    Result<Tensor> piece =
        checkpoint.piece(tensor.name, tensor.type,
                         program::ownedIndices(program.mesh, tensor.piece, coordinates), slot.type);
    if (!piece)
      return piece.error();
    if (Status status = executor.set(slot.tensor, *piece); !status)
      return status;
  }
  return Status::ok();
}

Result<std::vector<float>> Checkpoint::residual(int64_t rank, const std::string &place,
                                                size_t count) {
  if (rank >= int64_t(shards.size()))
    return damaged(path + " has no file of rank " + std::to_string(rank));
  auto content = shard(rank);
  if (!content)
    return content.error();
  auto entry = (*content)->entries.find(residualName(place));
  std::vector<float> elements(count);
  if (entry == (*content)->entries.end() || entry->second.dtype != "F32" ||
      entry->second.bytes != int64_t(count * sizeof(float)))
    return damaged(path + "/" + shards[size_t(rank)].file + " does not have \"" +
                   residualName(place) + "\" of " + std::to_string(count) + " elements");
  std::memcpy(elements.data(), (*content)->elements(entry->second), count * sizeof(float));
  return elements;
}

Status loadResiduals(Checkpoint &checkpoint, runtime::Executor &executor) {
  for (const auto &[place, count] : executor.gradientResiduals()) {
    auto stored = checkpoint.residual(executor.rank(), place, count);
    if (!stored)
      return stored.error();
    executor.setGradientResidual(place, std::move(*stored));
  }
  return Status::ok();
}

Status consolidate(const std::string &path, const std::string &output, bool withOptimizer) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint)
    return checkpoint.error();
  std::vector<Entry> entries;
  std::vector<const StoredTensor *> tensors;
  for (const StoredTensor &tensor : checkpoint->tensors()) {
    if (tensor.role == Role::OptimizerState && !withOptimizer)
      continue;
    tensors.push_back(&tensor);
    entries.push_back(
        {tensor.name, storedType(tensor.type.dtype, checkpoint->arith()), tensor.type.shape, 0, 0});
  }
  std::string temporary = output + ".tmp-" + std::to_string(getpid());
  Status status = writeSafetensors(
      temporary, entries, {{"format", "pt"}, {"step", std::to_string(checkpoint->progress().step)}},
      [&](size_t i) -> Result<std::vector<unsigned char>> {
        const kernels::TensorType &type = tensors[i]->type;
        std::vector<int64_t> all(size_t(kernels::numElements(type.shape)));
        for (size_t e = 0; e < all.size(); ++e)
          all[e] = int64_t(e);
        Result<Tensor> whole = checkpoint->piece(tensors[i]->name, type, all, type);
        if (!whole)
          return whole.error();
        return comm::encode(*whole);
      },
      Sums::None, output);
  if (status && std::rename(temporary.c_str(), output.c_str()) != 0)
    status = Error{ErrorCode::Other, "cannot replace " + output + ": " + strerror(errno)};
  if (!status)
    std::remove(temporary.c_str());
  return status;
}

} // namespace tbc::checkpoint
