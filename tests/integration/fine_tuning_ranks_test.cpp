// Ranks that share the layers of a model which a folder has: they train all of its weights, or adapters beside them, as
// one process does.
#include "integration/shared_layers_testing.h"

namespace linnet::testing {
namespace {
class FineTuningRanks : public SharedLayers {
 protected:
  // A small decoder as a model folder.
  std::string make_folder(const std::string& architecture) const {
    Arguments base = gpt(architecture, {"--set", "architecture=" + architecture});
    if (architecture == "llama") add_settings(base, {"dropout=0"});
    expect_trained(run(base));
    expect_trained(run({"export", folder_ / architecture, "--out", folder_ / (architecture + "_model")}));
    return folder_ / (architecture + "_model");
  }

  Arguments tune(const std::string& run, const std::string& model, const Arguments& settings) const {
    Arguments arguments{"train", "text", "--data", text_, "--run", folder_ / run};
    add_settings(arguments,
        {"model.from=" + model, "context=24", "batch_size=4", "accumulate_steps=2", "max_steps=20", "eval_every=10",
            "save_every=10", "schedule=constant", "warmup_steps=0", "sample_length=0", "precision=fp32", "threads=1"});
    add_settings(arguments, settings);
    return arguments;
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const auto& record : of_split(read_metrics(folder_ / run), "train")) all.push_back(std::stod(record.loss));
    return all;
  }

  void expect_as_alone(const std::function<Arguments(const std::string& run)>& arguments, const std::string& name) {
    expect_trained(with_ranks(arguments(name), 1));
    for (const std::string layout : {"tensor=2", "pipeline=2"}) {
      SCOPED_TRACE(name + " " + layout);
      Arguments divided = arguments(name + "_" + layout);
      divided.insert(divided.end(), {"--parallel", layout});
      expect_trained(with_ranks(divided, 2));
      expect_close_losses(name + "_" + layout, name);
    }
  }
};

TEST_F(FineTuningRanks, GoOnFromAModelFolder) {
  for (const std::string architecture : {"gpt", "llama"}) {
    const std::string model = make_folder(architecture);
    const double begun = losses(architecture).front();
    const std::string all = architecture + "_all", adapters = architecture + "_adapters";
    expect_as_alone([&](const std::string& run) { return tune(run, model, {}); }, all);
    EXPECT_LT(losses(all).front(), 0.95 * begun);  // with the folder's weights
    const Arguments lora{"lora.rank=3", "learning_rate=1e-2"};
    expect_as_alone([&](const std::string& run) { return tune(run, model, lora); }, adapters);
    EXPECT_LT(losses(adapters).back(), losses(adapters).front());
    // What ranks have saved is whole: one process uses it.
    for (const std::string layout : {"tensor=2", "pipeline=2"}) {
      const std::string run_folder = folder_ / (adapters + "_" + layout);
      EXPECT_EQ(run({"eval", run_folder}).exit_code, 0);
      const Outcome exported = run({"export", run_folder, "--adapter", run_folder + "_exported"});
      EXPECT_EQ(exported.exit_code, 0) << exported.error;
    }
  }
}

// The head is drawn, as the folder has none.
TEST_F(FineTuningRanks, GiveABertANewHead) {
  std::string texts = "sentence\tlabel\n";
  for (int i = 0; i < 80; ++i)
    texts += std::string(i % 2 ? "the dog runs" : "a law sleeps") + (i % 3 ? " the b" : "") + "\t" +
             (i % 2 ? "animal\n" : "state\n");
  folder_.write("train.tsv", texts), folder_.write("dev.tsv", texts);
  const auto tune_bert = [&](const std::string& run, const Arguments& settings) {
    Arguments arguments{"train", "sst2", "--run", folder_ / run};
    add_settings(
        arguments, {"model.from=" LINNET_GOLDEN "/bert_model", "data.dir=" + folder_.path(), "context=16",
                       "batch_size=4", "accumulate_steps=2", "max_steps=20", "warmup_steps=0", "learning_rate=3e-3",
                       "eval_every=10", "save_every=10", "schedule=constant", "precision=fp32", "threads=1"});
    add_settings(arguments, settings);
    return arguments;
  };
  expect_as_alone([&](const std::string& run) { return tune_bert(run, {}); }, "all");
  expect_as_alone([&](const std::string& run) { return tune_bert(run, {"lora.rank=2"}); }, "adapters");
}

// Killed before it has a checkpoint or stopped after one, a run goes on as it would have.
TEST_F(FineTuningRanks, ResumeWithAnotherLayout) {
  const std::string model = make_folder("gpt");
  const Arguments lora{"lora.rank=3"};
  expect_trained(with_ranks(tune("one", model, lora), 1));
  Arguments first = tune("parts", model, lora), rest = first;
  first.insert(first.end(), {"--steps", "10", "--parallel", "tensor=2"});
  rest.insert(rest.end(), {"--resume", "--parallel", "pipeline=2"});
  expect_trained(with_ranks(first, 2));
  expect_trained(with_ranks(rest, 2));
  expect_close_losses("parts", "one");
}

TEST_F(FineTuningRanks, AFolderThatCannotBeReadIsOneLine) {
  const std::string model = make_folder("gpt");
  std::string weights = contents(model + "/model.safetensors");
  for (size_t i = weights.size() - 64; i < weights.size(); ++i) weights[i] = '\xff';  // of floats: NaN
  folder_.write("gpt_model/model.safetensors", weights);
  Arguments arguments = tune("run", model, {});
  arguments.insert(arguments.end(), {"--parallel", "tensor=2"});
  expect_user_error(with_ranks(arguments, 2), "not numbers");
}
}  // namespace
}  // namespace linnet::testing
