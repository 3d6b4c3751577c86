//===- ProgramBuilder.h - Programs by hand, for tests ----------------------===//

#ifndef TBC_TESTS_RUNTIME_SUPPORT_PROGRAMBUILDER_H
#define TBC_TESTS_RUNTIME_SUPPORT_PROGRAMBUILDER_H

#include "runtime/abi/Program.h"

namespace tbc::program {

/// Builds one block of a stage. Slots are given by name, and instruction ids by the caller.
class BlockBuilder {
public:
  BlockBuilder(Program &program, int stage, BlockId id)
      : program(program), stage(program.stages[stage]), block(this->stage.block(id)) {}

  ValueId read(const std::string &slot);
  void write(const std::string &slot, ValueId value, bool accumulate = false);
  void add(const std::string &slot, ValueId value) { write(slot, value, true); }

  ValueId kernel(const std::string &id, const std::string &op, std::vector<ValueId> operands,
                 kernels::Shape shape, kernels::Attrs attrs = {});
  /// Adds a kernel with several results of operand 0's type.
  std::vector<ValueId> kernels(const std::string &id, const std::string &op,
                               std::vector<ValueId> operands, int numResults, kernels::Attrs attrs);
  ValueId einsum(const std::string &id, ValueId lhs, ValueId rhs, std::vector<int64_t> lhsLabels,
                 std::vector<int64_t> rhsLabels, std::vector<int64_t> outLabels,
                 kernels::Shape shape);
  ValueId constant(const std::string &id, double value, kernels::Shape shape);

  ValueId allReduce(const std::string &id, ValueId value, const std::string &axis,
                    std::vector<int> stages = {});
  ValueId allGatherFlat(const std::string &id, ValueId value, const std::string &axis,
                        kernels::Shape full);
  ValueId reduceScatterFlat(const std::string &id, ValueId value, const std::string &axis);
  ValueId shardSliceFlat(const std::string &id, ValueId value, const std::string &axis);
  ValueId collective(const std::string &id, InstructionKind kind, ValueId value, Communication comm,
                     kernels::Shape shape);
  void send(const std::string &id, ValueId value, int toStage, int64_t channel, int lane = 0);
  ValueId recv(const std::string &id, kernels::Shape shape, int fromStage, int64_t channel,
               int lane = 0);

private:
  ValueId newValue(kernels::DType dtype, kernels::Shape shape);
  Communication over(const std::string &axis) const;
  int64_t chunkOf(ValueId value, const std::string &axis) const;

  Program &program;
  Stage &stage;
  Block &block;
};

/// Adds a global tensor and returns its index.
int addTensor(Program &program, Role role, const std::string &name, const std::string &initializer,
              Piece piece, std::vector<AxisRef> partial = {});
/// Adds a slot for a rank's piece of a tensor, with the tensor's name and role.
void addSlot(Program &program, int stage, int tensor);
/// Adds a slot that is no piece of a global tensor.
void addSlot(Program &program, int stage, Role role, const std::string &name, kernels::Shape shape,
             kernels::DType dtype = kernels::DType::F32);

} // namespace tbc::program

#endif // TBC_TESTS_RUNTIME_SUPPORT_PROGRAMBUILDER_H
