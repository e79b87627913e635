// The items of a stage's passes (distributed/simulate/training_step.h), from its nodes in their order.
#pragma once
#include <string>

#include "tasks/planning/rank_work.h"

namespace linnet {

class ItemList {
 public:
  // `detailed`: an item for each block in turn, with its name; otherwise one between two exchanges.
  explicit ItemList(bool detailed) : detailed_(detailed) {}

  void add(const NodeWork& node, const std::string& block) {
    const bool backward = node.phase == StepPhase::kBackward || node.phase == StepPhase::kBoth;
    if (backward) passed_loss_ = true;
    std::vector<WorkItem>& items = passed_loss_ ? stage.backward : stage.forward;
    // A node of the forward pass that only the backward pass needs may stand in it.
    if (items.empty() || is_closed_ || (detailed_ && items.back().name != block))
      items.push_back({.name = detailed_ ? block : passed_loss_ ? "backward" : "forward"});
    items.back().seconds += node.seconds;
    items.back().exchange = node.exchange;
    is_closed_ = node.exchange.exchanges > 0;
  }
  void close() { is_closed_ = true; }
  // What follows is of the backward pass.
  void begin_backward() { passed_loss_ = true, is_closed_ = true; }

  StageWork stage;

 private:
  const bool detailed_;
  bool is_closed_ = false, passed_loss_ = false;
};

}  // namespace linnet
