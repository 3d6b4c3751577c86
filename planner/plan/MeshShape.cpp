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

int64_t *MeshShape::find(const std::string &name) {
  return name == "pp"     ? &pp
         : name == "dp"   ? &dp
         : name == "fsdp" ? &fsdp
         : name == "ep"   ? &ep
         : name == "cp"   ? &cp
         : name == "tp"   ? &tp
                          : nullptr;
}

const std::vector<std::string> &axisNames() {
  static const std::vector<std::string> names = {"pp", "dp", "fsdp", "ep", "cp", "tp"};
  return names;
}

const std::vector<std::string> &dataAxisNames() {
  static const std::vector<std::string> names = {"dp", "fsdp", "ep"};
  return names;
}

const std::vector<std::string> &tokenAxisNames() {
  static const std::vector<std::string> names = {"dp", "fsdp", "ep", "cp"};
  return names;
}

std::string toString(const MeshShape &mesh) {
  std::string text;
  for (const reshard::MeshAxis &axis : mesh.mesh().axes)
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.size);
  return text.empty() ? "one device" : text;
}

} // namespace tbc::planner
