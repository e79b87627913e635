// What `linnet inspect` found out about one text: where a model's attention looked, and which tokens its answers came
// from. As JSON, and as a page.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace linnet {

struct InspectedSequence {
  std::string name;                 // "text", "source", "target"
  std::vector<std::string> tokens;  // as shown to people
};

struct InspectedAttention {
  std::string module;    // "layers.0.self_attn"
  size_t queries, keys;  // the sequences that look, and are looked at
  size_t heads;
  std::vector<float> weights;  // [heads, queries, keys], rows that sum to 1
};

struct InspectedAnswer {
  std::string text;                                       // a class or a token
  std::vector<std::pair<std::string, double>> likeliest;  // answers with their probabilities, best first
  double log_probability = 0;                             // natural
  double baseline = 0;                                    // where every token's embedding is the mean of the table
  std::vector<std::vector<double>> shares;                // [sequences][tokens]: add up to the difference of the two
};

struct Inspection {
  std::string model;  // its folder
  std::string kind;   // "language model"
  std::vector<InspectedSequence> sequences;
  std::vector<InspectedAttention> attention;
  std::vector<InspectedAnswer> answers;
};

std::string inspection_json(const Inspection& inspection);
// One self-contained file: no network, no other files. Attention weights are rounded to multiples of 1 / 65535.
std::string inspection_page(const Inspection& inspection);

}  // namespace linnet
