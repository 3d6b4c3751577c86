//===- InterleavingSearch.cpp - All interleavings of the ranks -------------===//

#include "tests/runtime/verify/InterleavingSearch.h"

namespace tbc::verify {

using program::Instruction;
using program::InstructionKind;
using program::Program;

/// Adds the operations of a rank in one of its forward blocks. The other blocks are empty.
static void addOps(const Program &program, const std::vector<int64_t> &coordinates,
                   const schedule::Action &action, std::vector<RankOp> &ops) {
  const program::Stage &stage = program.stages[program.stageOf(coordinates)];
  const std::vector<Instruction> &instructions = stage.block(action).instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction &instruction = instructions[i];
    if (instruction.kind == InstructionKind::Kernel)
      continue;
    RankOp op;
    op.chunk = action.chunk;
    op.instruction = int(i);
    if (instruction.kind == InstructionKind::Send || instruction.kind == InstructionKind::Recv) {
      bool isSend = instruction.kind == InstructionKind::Send;
      op.kind = isSend ? RankOp::Kind::Send : RankOp::Kind::Recv;
      std::vector<int64_t> peer = coordinates;
      peer[program.pipelineAxis] = instruction.comm.peerStage;
      op.peer = int(program.mesh.rankOf(peer));
      op.channel = instruction.comm.channel;
      op.lane = instruction.comm.lane;
    } else {
      for (int64_t member : groupOf(program, instruction.comm, coordinates))
        op.group.push_back(int(member));
      op.what = instruction.comm.reduce == program::ReduceKind::Max ? "max" : "sum";
      op.what += " in chunk " + std::to_string(action.chunk);
    }
    ops.push_back(std::move(op));
  }
}

std::vector<std::vector<RankOp>> rankOps(const Program &program) {
  std::vector<std::vector<RankOp>> ranks;
  for (int64_t rank = 0; rank < program.mesh.numRanks(); ++rank) {
    std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
    std::vector<RankOp> &ops = ranks.emplace_back();
    for (const schedule::Action &action : actionsOf(program, program.stageOf(coordinates)))
      addOps(program, coordinates, action, ops);
  }
  return ranks;
}

std::string InterleavingSearch::State::key() const {
  std::string text(next.begin(), next.end());
  for (const std::vector<int64_t> &messages : queue) {
    text += '|';
    for (int64_t channel : messages)
      text += char(channel);
  }
  return text;
}

Outcomes InterleavingSearch::run() {
  State begin;
  begin.next.assign(ranks.size(), 0);
  begin.queue.resize(ranks.size() * ranks.size() * numLanes);
  visit(begin);
  outcomes.numStates = int64_t(seen.size());
  return outcomes;
}

void InterleavingSearch::visit(const State &state) {
  if (!seen.insert(state.key()).second)
    return;
  std::vector<State> successors;
  for (int rank = 0; rank < int(ranks.size()); ++rank) {
    const RankOp *op = current(state, rank);
    if (!op)
      continue;
    if (op->kind == RankOp::Kind::Send)
      trySend(state, rank, successors);
    else if (op->kind == RankOp::Kind::Recv)
      tryRecv(state, rank, successors);
    else
      tryMeet(state, rank, successors);
  }
  if (successors.empty())
    end(state);
  for (const State &successor : successors)
    visit(successor);
}

void InterleavingSearch::trySend(const State &state, int rank, std::vector<State> &successors) {
  const RankOp &send = *current(state, rank);
  State after = state;
  ++after.next[rank];
  if (isBuffered) {
    after.queue[queueOf(rank, send.peer, send.lane)].push_back(send.channel);
  } else {
    const RankOp *theirs = current(state, send.peer);
    if (!theirs || theirs->kind != RankOp::Kind::Recv || theirs->peer != rank ||
        theirs->lane != send.lane)
      return;
    outcomes.canMismatch |= theirs->channel != send.channel;
    ++after.next[send.peer];
  }
  successors.push_back(std::move(after));
}

void InterleavingSearch::tryRecv(const State &state, int rank, std::vector<State> &successors) {
  const RankOp &recv = *current(state, rank);
  const std::vector<int64_t> &messages = state.queue[queueOf(recv.peer, rank, recv.lane)];
  if (messages.empty())
    return;
  outcomes.canMismatch |= messages.front() != recv.channel;
  State after = state;
  ++after.next[rank];
  std::vector<int64_t> &left = after.queue[queueOf(recv.peer, rank, recv.lane)];
  left.erase(left.begin());
  successors.push_back(std::move(after));
}

void InterleavingSearch::tryMeet(const State &state, int rank, std::vector<State> &successors) {
  const RankOp &meet = *current(state, rank);
  State after = state;
  for (int member : meet.group) {
    const RankOp *theirs = current(state, member);
    if (!theirs || theirs->kind != RankOp::Kind::Meet || theirs->group != meet.group)
      return;
    outcomes.canMismatch |= theirs->what != meet.what;
    ++after.next[member];
  }
  successors.push_back(std::move(after));
}

void InterleavingSearch::end(const State &state) {
  ++outcomes.numEnds;
  std::vector<int> waitsAt;
  bool isFinished = true;
  for (int rank = 0; rank < int(ranks.size()); ++rank) {
    waitsAt.push_back(current(state, rank) ? int(state.next[rank]) : -1);
    isFinished &= waitsAt.back() < 0;
  }
  for (const std::vector<int64_t> &messages : state.queue)
    outcomes.canMismatch |= isFinished && !messages.empty();
  (isFinished ? outcomes.canFinish : outcomes.canGetStuck) = true;
  if (!isFinished)
    outcomes.stuckAt = std::move(waitsAt);
}

} // namespace tbc::verify
