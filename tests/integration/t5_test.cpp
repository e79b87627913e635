// T5 through the command line: on sentences from nothing, and again from the folder that it was exported to.
#include <gtest/gtest.h>
#include <cstring>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
// The last `count` floats of a tensor of a safetensors file.
std::vector<float> last_of(const std::string& path, const std::string& tensor, size_t count) {
  const std::string file = contents(path);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const auto found = ParsedJson::parse(file.substr(8, header)).at(tensor);
  EXPECT_EQ(found["dtype"], "F32");
  std::vector<float> values(count);
  std::memcpy(
      values.data(), file.data() + 8 + header + found["data_offsets"][1].get<uint64_t>() - 4 * count, 4 * count);
  return values;
}

// The target says the source's words in another language, in their order.
void write_pairs(const TemporaryFolder& folder) {
  const char *from[] = {"red", "green", "small", "large", "house", "river", "stone", "bread"},
             *to[] = {"rot", "grün", "klein", "groß", "Haus", "Fluss", "Stein", "Brot"};
  std::string source, target;
  uint32_t random = 7;
  for (int i = 0; i < 1200; ++i) {
    for (int k = 0; k < 2 + i % 3; ++k) {
      random = random * 1664525 + 1013904223;
      source += std::string(k > 0 ? " " : "") + from[random >> 29];
      target += std::string(k > 0 ? " " : "") + to[random >> 29];
    }
    source += "\r\n", target += "\n";
  }
  folder.write("source.txt", source);
  folder.write("target.txt", target);
}

class T5Run : public ::testing::Test {
 protected:
  T5Run() { write_pairs(folder_); }
  Outcome train_t5(const std::string& run_folder, const Arguments& settings = {}, const Arguments& more = {},
      const std::string& log = "off") const {
    Arguments arguments{"train", "t5-small", "--run", folder_ / run_folder, "--source", folder_ / "source.txt",
        "--target", folder_ / "target.txt"};
    Arguments small{"max_seq_len=32", "vocab_size=44", "batch_size=32", "batch_tokens=0", "num_buckets=2",
        "max_steps=700", "learning_rate=3e-3", "warmup_steps=20", "eval_every=350", "save_every=50",
        "held_out_pairs=50", "metric=exact_match", "precision=fp32", "schedule=constant"};
    if (!starts_from_folder(settings))
      small.insert(small.end(), {"d_model=32", "d_ff=64", "num_heads=2", "num_layers=1", "dropout=0"});
    small.insert(small.end(), settings.begin(), settings.end());
    add_settings(arguments, small);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.log = log});
  }
  TemporaryFolder folder_;
};

TEST_F(T5Run, LearnsTranslatesAndGoesOnFromItsModelFolder) {
  const Outcome trained = train_t5("a");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Outcome evaluated = run({"eval", folder_ / "a", "--split", "valid", "--beam", "1", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  const auto json = ParsedJson::parse(evaluated.out);
  EXPECT_EQ(json["pairs"], 50);
  EXPECT_GT(json["exact_match"], 0.6);
  EXPECT_GT(json["bleu"], 50);
  EXPECT_LT(json["loss"], 0.35);

  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "model"}).exit_code, 0);
  EXPECT_TRUE(exists(folder_ / "model/spiece.model"));
  // T5Tokenizer of transformers takes <pad> = 0, </s> = 1 and <unk> = 2 for granted.
  EXPECT_EQ(run({"tokenizer", "encode", folder_ / "model", "--tokens", "--special"}, {.input = "\u4e16\n"}).out,
      "\u2581 <unk> </s>\n");
  EXPECT_TRUE(
      run({"tokenizer", "encode", folder_ / "model", "--special"}, {.input = "\u4e16\n"}).out.ends_with(" 2 1\n"));
  EXPECT_EQ(run({"tokenizer", "decode", folder_ / "model"}, {.input = "0\n"}).out, "<pad>\n");
  const std::string input = "red house\n\nlarge stone bread\n";
  const Outcome from_run = run({"translate", folder_ / "a"}, {.input = input});
  ASSERT_EQ(from_run.exit_code, 0) << from_run.error;
  EXPECT_EQ(lines(from_run.out).size(), 3u);
  const Outcome from_folder = run({"translate", folder_ / "model"}, {.input = input});
  EXPECT_EQ(from_folder.out, from_run.out) << from_folder.error;
  const Outcome greedy = run({"translate", folder_ / "model", "--beam", "1"}, {.input = "red house\n"});
  EXPECT_EQ(run({"generate", folder_ / "model", "--prompt", "red house"}).out, greedy.out);
  EXPECT_EQ(run({"generate", folder_ / "a", "--prompt", "red house"}).out, greedy.out);

  // What the model's makers say of the search counts where the command line says nothing.
  folder_.write("model/generation_config.json", R"({"num_beams": 2, "eos_token_id": 1})");
  EXPECT_EQ(run({"translate", folder_ / "model", "--n-best", "2"}, {.input = "red house\n"}).exit_code, 0);
  const Outcome three = run({"translate", folder_ / "model", "--n-best", "3"}, {.input = "red house\n"});
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_NE(three.error.find("which is 2"), three.error.npos) << three.error;

  const Outcome tuned =
      train_t5("b", {"model.from=" + (folder_ / "model"), "max_steps=1", "learning_rate=1e-7", "warmup_steps=0"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.error;
  const Outcome again = run({"eval", folder_ / "b", "--split", "valid", "--beam", "1", "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.error;
  EXPECT_NEAR(ParsedJson::parse(again.out)["loss"], json["loss"].get<double>(), 1e-3);
}

TEST_F(T5Run, AResumedRunIsTheSameBitForBit) {
  ASSERT_EQ(train_t5("straight", {"max_steps=60", "dropout=0.1", "warmup_steps=8"}).exit_code, 0);
  ASSERT_EQ(train_t5("resumed", {"max_steps=33", "dropout=0.1", "warmup_steps=8"}).exit_code, 0);
  const Outcome resumed = train_t5("resumed", {"max_steps=60", "dropout=0.1", "warmup_steps=8"}, {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.error;
  const auto losses = [&](const char* name) { return of_split(read_metrics(folder_ / name), "train"); };
  EXPECT_EQ(losses("resumed"), losses("straight"));
}

TEST_F(T5Run, IsWarnedOfOverflowsInFp16) {
  const Arguments few{"max_steps=2", "eval_every=2", "metric=loss"};
  Arguments half = few;
  half.back() = "precision=fp16";
  const Outcome warned = train_t5("half", half, {}, "warning");
  ASSERT_EQ(warned.exit_code, 0) << warned.error;
  EXPECT_NE(warned.error.find("can exceed 65504"), std::string::npos) << warned.error;
  EXPECT_EQ(train_t5("full", few, {}, "warning").error.find("65504"), std::string::npos);
}

TEST_F(T5Run, AMarianFolderIsTrainedOn) {
  copy_folder(std::string(LINNET_GOLDEN) + "/marian", folder_ / "marian");
  std::string vocabulary;
  for (int id = 0; id < 61; ++id)
    vocabulary += (id == 3      ? "[UNK]"
                      : id < 30 ? std::string(1, static_cast<char>('a' + id % 26)) + (id > 25 ? "x" : "")
                                : "##" + std::string(1, static_cast<char>('a' + id % 26)) + (id > 55 ? "x" : "")) +
                  "\n";
  folder_.write("marian/vocab.txt", vocabulary);
  const Outcome trained = train_t5("m", {"architecture=marian", "max_seq_len=20", "metric=loss", "max_steps=20",
                                            "eval_every=10", "model.from=" + (folder_ / "marian")});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Outcome longer = train_t5("longer", {"architecture=marian", "model.from=" + (folder_ / "marian")});
  EXPECT_NE(longer.error.find("the model takes 20 tokens (--set max_seq_len=20)"), std::string::npos) << longer.error;
  ASSERT_EQ(run({"export", folder_ / "m", "--out", folder_ / "out"}).exit_code, 0);
  const Outcome evaluated = run({"eval", folder_ / "out", "--source", folder_ / "source.txt", "--target",
      folder_ / "target.txt", "--beam", "1", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  EXPECT_LT(ParsedJson::parse(evaluated.out)["loss"], 4.1);
}

// CTranslate2, for one, begins from a zero embedding and leaves out the last token, which is the padding.
TEST_F(T5Run, AMarianFromNothingBeginsFromAZeroEmbeddingWhoeverReadsIt) {
  const Outcome trained = train_t5(
      "m", {"architecture=marian", "norm=post", "final_norm=false", "metric=loss", "max_steps=150", "eval_every=150"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  ASSERT_EQ(run({"export", folder_ / "m", "--out", folder_ / "out"}).exit_code, 0);
  const auto config = ParsedJson::parse(contents(folder_ / "out/config.json"));
  const auto vocabulary = ParsedJson::parse(contents(folder_ / "out/vocab.json"));
  const int64_t last = config["vocab_size"].get<int64_t>() - 1;
  EXPECT_EQ(vocabulary.size(), last + 1);
  EXPECT_EQ(vocabulary["<pad>"], last);
  EXPECT_EQ(config["decoder_start_token_id"], last);
  EXPECT_EQ(vocabulary["</s>"], config["eos_token_id"]);
  const std::string weights = folder_ / "out/model.safetensors";
  EXPECT_EQ(last_of(weights, "model.shared.weight", 32), std::vector<float>(32, 0));
  EXPECT_LE(last_of(weights, "final_logits_bias", 1)[0], -100);

  const std::string input = "red house\n\nlarge stone bread\nsmall river\n";
  const Outcome from_run = run({"translate", folder_ / "m", "--beam", "2"}, {.input = input});
  ASSERT_EQ(from_run.exit_code, 0) << from_run.error;
  EXPECT_NE(lines(from_run.out)[0], lines(from_run.out)[2]);
  EXPECT_EQ(run({"translate", folder_ / "out", "--beam", "2"}, {.input = input}).out, from_run.out);
  // Nothing reads the flag but Linnet: without it the weights say the same.
  auto plain = config;
  ASSERT_EQ(plain.erase("start_from_zero_embedding"), 1u);
  folder_.write("out/config.json", plain.dump());
  EXPECT_EQ(run({"translate", folder_ / "out", "--beam", "2"}, {.input = input}).out, from_run.out);
}

TEST_F(T5Run, BadInputIsOneLine) {
  const auto refused = [&](const Arguments& settings, const std::string& part) {
    expect_user_error(train_t5("refused", settings), part);
  };
  refused({"joint_vocab=false", "share_embeddings=false"}, "a t5 has one vocabulary");
  refused({"model.from=missing"}, "missing");
  refused({"model.from=" + std::string(LINNET_GOLDEN) + "/gpt2"}, "gpt2");
}
}  // namespace
}  // namespace linnet::testing
