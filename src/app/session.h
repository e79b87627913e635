// A model with everything around it that a command needs: configuration, tokenizers, parameters in planned memory.
#pragma once
#include <memory>

#include "app/tokenizer_pair.h"
#include "data/batch.h"
#include "data/buckets.h"
#include "generate/generator.h"
#include "models/transformer.h"
#include "train/trainer.h"

namespace linnet {

TransformerConfig transformer_config(const Config& config, const TokenizerPair& tokenizers);

struct GenerationNeeds {
  int64_t beams = 1, sentences = 32;
};

struct SessionOptions {
  bool training = true;
  std::vector<BatchShape> shapes;           // of batches to train on (or only evaluate)
  std::vector<GenerationNeeds> generation;  // the largest first
  bool verify_plans = true;                 // off when only sizes are wanted
};

class Session {
 public:
  // Plans everything; takes no memory yet, so that its size can be printed or refused.
  Session(const Config& config, TokenizerPair tokenizers, SessionOptions options);

  void allocate();  // takes the planned memory and binds the plans to it

  // Copies a batch to where the graphs read it.
  void load_batch(const Batch& batch);

  const Config config;
  const TokenizerPair tokenizers;
  Transformer model;
  ParameterLayout layout;
  Store store;
  SharedRegions shared;
  std::unique_ptr<Trainer> trainer;
  std::vector<std::unique_ptr<Generator>> generators;
  std::vector<BatchShape> shapes;

 private:
  void bind_batch_inputs();
};

}  // namespace linnet
