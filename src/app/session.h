// A model with everything around it that a command needs: configuration, tokenizers, parameters in planned memory.
#pragma once
#include <memory>

#include "app/translation_model.h"
#include "data/batch.h"
#include "data/buckets.h"
#include "generate/generator.h"
#include "train/trainer.h"

namespace linnet {

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
  Session(const Config& config, const TranslationModel& model, SessionOptions options);

  void allocate();  // takes the planned memory and binds the plans to it

  // Copies a batch to where the graphs read it.
  void load_batch(const Batch& batch);

  const Config config;
  const TokenizerPair tokenizers;
  const std::shared_ptr<EncoderDecoder> model;
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
