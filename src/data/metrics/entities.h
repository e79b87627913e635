// Entities of a text by the tags of its words: B-PER, I-PER, O (Ramshaw & Marcus 1995), also E- and S- for the last and
// the only word of one.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>
#include "data/metrics/decision_counts.h"

namespace linnet {

struct Entity {
  int64_t begin, end;  // words, [begin, end)
  std::string label;   // "PER"
  bool operator==(const Entity&) const = default;
};

// As conlleval and seqeval find them: an I- that follows nothing of its label begins an entity.
std::vector<Entity> find_entities(std::span<const std::string> tags);
// Counts the entities of a text by label; one is right if its words and its label are.
using EntityCounts = std::map<std::string, DecisionCounts>;
void count_entities(std::span<const std::string> predicted, std::span<const std::string> there, EntityCounts& counts);

}  // namespace linnet
