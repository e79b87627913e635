// Models of folders as transformers writes them, as parts of models of one's own.
//
//   struct Classifier : Module {
//     explicit Classifier(const std::string& folder)
//         : encoder{this, "encoder", folder}, head{this, "head", encoder.width(), 2} {}
//     PretrainedEncoder encoder;
//     Linear head;
//   };
//   Learner learner(model, ...);  // begins with the folder's weights
//
// docs/models.md has the list of families.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "linnet/learner.h"
#include "linnet/module.h"

namespace linnet {
// What all of them have: the folder's weights go into a learner, and a learner's into a folder.
class PretrainedModule : public Module {
 public:
  // Takes its parts.
  PretrainedModule(PretrainedModule&& other) noexcept;
  // Frees it.
  ~PretrainedModule() override;

  // Reads the folder's weights, one file or shards, into a learner whose model this is a part of. The learner has done
  // so when it was constructed; call it to go back to them, or for the report: which parameters were taken, which the
  // folder does not have, and which of its tensors are not used.
  LoadReport load(Learner& learner);
  // Calls load().
  void begin(Learner& learner) override;
  // Writes a folder that transformers loads: the model with the learner's weights, configuration and tokenizer files,
  // and, in head.safetensors, all other parameters of the learner by name.
  void save(Learner& learner, const std::string& folder) const;

 protected:
  friend class TextGenerator;
  struct State;
  // Reads the configuration and the names of all weights, no data.
  PretrainedModule(Module* parent, std::string name, std::unique_ptr<State> state);
  std::unique_ptr<State> state_;  // the folder and its model
};

// An encoder of texts: BERT (Devlin et al. 2019) and its kind.
class PretrainedEncoder : public PretrainedModule {
 public:
  // Reads the configuration and the names of all weights, no data. Throws Error(kUser) naming the file and what is
  // missing, of another shape or not supported.
  PretrainedEncoder(Module* parent, std::string name, const std::string& folder);

  // tokens and types i32 [B, T], lengths i32 [B] (how many tokens count, at least 1) -> states [B, T, width]. Without
  // `types` every token is of type 0.
  Tensor operator()(Tensor tokens, Tensor lengths, Tensor types = {});
  // The state of the first token through the folder's dense layer and tanh: states [B, T, width] -> [B, width].
  Tensor pooled(Tensor states);
  // Of a state.
  int64_t width() const;
  // The most tokens of a row.
  int64_t max_length() const;
};

// The name that it had when BERT was the only one.
using PretrainedBert = PretrainedEncoder;

// A decoder-only model of texts: GPT-2, Llama and their kind.
class PretrainedDecoder : public PretrainedModule {
 public:
  // As PretrainedEncoder.
  PretrainedDecoder(Module* parent, std::string name, const std::string& folder);

  // tokens i32 [B, T] -> the last layer's normalized states [B, T, width]. Each sees itself and those before it; with
  // `lengths` i32 [B], of padded rows, none behind the length.
  Tensor operator()(Tensor tokens, Tensor lengths = {});
  // States [..., width] -> logits [..., vocab_size].
  Tensor logits(Tensor states);
  // The output layer [vocab_size, width]: linear_cross_entropy_sum(states, head_weight(), {}, targets) is the loss
  // without logits in memory.
  Tensor head_weight();
  // Of a state.
  int64_t width() const;
  // How many tokens there are.
  int64_t vocab_size() const;
  // The most tokens of a row.
  int64_t max_length() const;
};

// A model that reads one text and writes another: T5, Marian and their kind.
class PretrainedEncoderDecoder : public PretrainedModule {
 public:
  // As PretrainedEncoder.
  PretrainedEncoderDecoder(Module* parent, std::string name, const std::string& folder);

  // source i32 [B, S], lengths i32 [B] -> states [B, S, width].
  Tensor encode(Tensor source, Tensor source_lengths);
  // The logits [B, T, vocab_size] of what follows target_in i32 [B, T], of which target_lengths i32 [B] tokens count.
  Tensor logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths);
  // The sum of the cross-entropies of targets i32 [B, T] after target_in, of which negative ones are left out.
  Tensor loss_sum(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
      double label_smoothing = 0);
  // Of a state.
  int64_t width() const;
  // How many tokens there are to write.
  int64_t vocab_size() const;
};

// A model that tells the classes of images: ViT, ResNet and their kind.
class PretrainedImageModel : public PretrainedModule {
 public:
  // As PretrainedEncoder.
  PretrainedImageModel(Module* parent, std::string name, const std::string& folder);

  // Bytes u8 [B, height, width, channels], which it normalizes as the folder says -> logits [B, classes].
  Tensor operator()(Tensor images);
  // {height, width, channels} of the images.
  Shape image_shape() const;
  // How many classes there are.
  int64_t classes() const;
};
}  // namespace linnet
