//===- MeshShape.cpp - The mesh of a plan, by strategy --------------------===//

#include "planner/plan/MeshShape.h"

namespace tbc::planner {

reshard::Mesh MeshShape::mesh() const {
  reshard::Mesh mesh;
  for (auto [name, size] : axes())
    if (size > 1)
      mesh.axes.push_back({name, size});
  return mesh;
}

int64_t MeshShape::*MeshShape::memberOf(Axis axis) {
  switch (axis) {
  case Axis::Pipeline:
    return &MeshShape::pp;
  case Axis::Data:
    return &MeshShape::dp;
  case Axis::ShardedData:
    return &MeshShape::fsdp;
  case Axis::Expert:
    return &MeshShape::ep;
  case Axis::Context:
    return &MeshShape::cp;
  case Axis::Tensor:
    return &MeshShape::tp;
  }
  __builtin_unreachable();
}

int64_t *MeshShape::find(const std::string &name) {
  std::optional<Axis> axis = mesh::parseAxis(name);
  return axis ? &of(*axis) : nullptr;
}

std::vector<std::pair<const char *, int64_t>> MeshShape::axes() const {
  std::vector<std::pair<const char *, int64_t>> axes;
  for (Axis axis : mesh::allAxes())
    axes.push_back({mesh::row(axis).name, of(axis)});
  return axes;
}

std::string toString(const MeshShape &mesh) {
  std::string text;
  for (const reshard::MeshAxis &axis : mesh.mesh().axes)
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.size);
  return text.empty() ? "one device" : text;
}

} // namespace tbc::planner
