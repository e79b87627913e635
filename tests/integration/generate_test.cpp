// `linnet generate` on the tiny model folders of tests/golden: what transformers writes, streamed or not, until Ctrl-C.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "integration/program.h"

namespace linnet::testing {
namespace {

const std::string kGolden = LINNET_GOLDEN;

// Token 17 is the word "w17".
std::string text_of(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "w" : " w") + std::to_string(id);
  return text;
}

// What the program prints of these tokens: a decoder's text follows the prompt, so it begins with a space.
std::string printed(const std::string& model, const std::vector<int>& ids) {
  const bool answers = model.starts_with("t5") || model.starts_with("marian");
  return (answers || ids.empty() ? "" : " ") + text_of(ids) + "\n";
}

class Generate : public ::testing::Test {
 protected:
  // A model folder with a tokenizer of such words.
  std::string model(const std::string& name) const {
    const std::string folder = folder_ / name;
    if (exists(folder)) return folder;
    copy_folder(kGolden + "/" + name, folder);
    const int size = nlohmann::json::parse(contents(folder + "/config.json"))["vocab_size"];
    std::string vocabulary;
    for (int id = 0; id < size; ++id) vocabulary += id == 3 ? "[UNK]\n" : "w" + std::to_string(id) + "\n";
    folder_.write(name + "/vocab.txt", vocabulary);
    return folder;
  }
  std::string generate(const std::string& name, const Arguments& more) const {
    Arguments arguments{"generate", model(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.out;
  }
  TemporaryFolder folder_;
};

TEST_F(Generate, WritesWhatTransformersWrites) {
  const auto golden = nlohmann::json::parse(contents(kGolden + "/generated.json"));
  for (const auto& [name, cases] : golden.items())
    for (const auto& one : cases) {
      const Arguments prompt{"--prompt", text_of(one["prompt"]), "--max-tokens", "14"};
      const auto with = [&](const char* option, const char* value) {
        Arguments all = prompt;
        all.insert(all.end(), {option, value});
        return all;
      };
      EXPECT_EQ(generate(name, with("--temperature", "0")), printed(name, one["greedy"])) << name;
      EXPECT_EQ(generate(name, with("--beam", "3")), printed(name, one["beam"])) << name;
    }
}

TEST_F(Generate, SearchesRankAndStopAsThoseOfTransformers) {
  const auto golden = nlohmann::json::parse(contents(kGolden + "/searched.json"));
  for (const auto& [name, cases] : golden.items())
    for (const auto& one : cases) {
      model(name);
      folder_.write(name + "/generation_config.json", one["config"].dump());
      EXPECT_EQ(generate(name, {"--prompt", text_of(one["prompt"])}), printed(name, one["written"]))
          << name << ' ' << one.dump();
    }
}

TEST_F(Generate, AStreamedTextIsTheWholeOne) {
  for (const char* name : {"llama", "t5_gated"}) {
    const Arguments likeliest{"--prompt", "w30 w52 w6", "--temperature", "0", "--max-tokens", "20"};
    Arguments two = likeliest;
    two.insert(two.end(), {"--samples", "2"});  // printed when both are done
    const std::string streamed = generate(name, likeliest);
    EXPECT_EQ(generate(name, two), streamed + "\n" + streamed);
    const Arguments drawn{"--prompt", "w30 w52 w6", "--seed", "5", "--temperature", "0.9", "--max-tokens", "20"};
    EXPECT_EQ(generate(name, drawn), generate(name, drawn));
    EXPECT_NE(generate(name, drawn), streamed);
  }
}

// In place of the words' vocabulary: a tokenizer of Llama's kind, with the space before a word in the token and a
// template that puts token 1 before a text.
void use_metaspace_tokenizer(const std::string& folder) {
  using nlohmann::json;
  const int size = json::parse(contents(folder + "/config.json"))["vocab_size"];
  std::filesystem::remove(folder + "/vocab.txt");
  json tokens = json::array();
  for (int id = 0; id < size; ++id) tokens.push_back({"\u2581w" + std::to_string(id), -1.0});
  tokens[0][0] = "<unk>", tokens[1][0] = "<s>", tokens[2][0] = "</s>";
  const json begin = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json space = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  json added = json::array();
  for (int id = 0; id < 3; ++id) added.push_back({{"id", id}, {"content", tokens[id][0]}, {"special", true}});
  const json tokenizer = {
      {"added_tokens", added},
      {"pre_tokenizer", space},
      {"decoder", space},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", json::array({begin, text})},
        {"pair", json::array({begin, text})},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", json::array({1})}, {"tokens", json::array({"<s>"})}}}}}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", tokens}}}};
  std::ofstream(folder + "/tokenizer.json") << tokenizer.dump();
}

// The model sees the template's token before the prompt, and the text that follows begins with its space.
TEST_F(Generate, APromptHasItsTemplateAndATextItsFirstSpace) {
  const Arguments greedy{"--temperature", "0", "--max-tokens", "6", "--prompt"};
  const auto with = [&](Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const std::string words = generate("llama", with(greedy, {"w1 w30 w52"}));
  use_metaspace_tokenizer(model("llama"));
  EXPECT_EQ(generate("llama", with(greedy, {"w30 w52"})), words);
  EXPECT_EQ(generate("llama", with(greedy, {"w30 w52", "--echo"})), "w30 w52" + words);
  EXPECT_EQ(generate("llama", with(greedy, {"w30 w52", "--samples", "2"})), words + "\n" + words);
  EXPECT_EQ(generate("llama", {"--prompt", "w30 w52", "--beam", "1", "--temperature", "0", "--max-tokens", "6"}),
            words);
}

// Each line of JSON is scored as transformers scores tokenizer(text) and the end token.
TEST_F(Generate, DocumentsBeginWithTheTokenOfTheTemplate) {
  const std::string folder = model("llama");
  const auto loss = [&](const std::string& file) {
    const Outcome outcome = run({"eval", folder, "--data", file, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return nlohmann::json::parse(outcome.out);
  };
  const auto one = loss(folder_.write("one.txt", "w1 w30 w52 w6 w2"));
  const auto two = loss(folder_.write("two.txt", "w1 w7 w8 w2"));
  use_metaspace_tokenizer(folder);
  const auto packed = loss(folder_.write("documents.jsonl", "{\"text\": \"w30 w52 w6\"}\n{\"text\": \"w7 w8\"}\n"));
  EXPECT_EQ(packed["tokens"], 7);  // of both documents, with </s> and without <s>
  EXPECT_NEAR(packed["loss"].get<double>() * 7, one["loss"].get<double>() * 4 + two["loss"].get<double>() * 3, 1e-4);
  EXPECT_EQ(loss(folder_.write("plain.txt", "w30 w52 w6 w2"))["tokens"], 4);
}

TEST_F(Generate, AnInterruptEndsTheTextWithAWholeLine) {
  const std::string out = folder_ / "out";
  Program program({"generate", model("gpt2"), "--prompt", "w30 w52", "--ignore-end", "--max-tokens", "1000000000"},
                  {.output_path = out});
  for (int i = 0; i < 1000 && contents(out).size() < 100 && program.running(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(program.running());
  program.send(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error << outcome.signal;
  const std::string text = contents(out);
  ASSERT_GT(text.size(), 100u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(lines(text).size(), 1u);
}

TEST_F(Generate, BadInputIsOneLine) {
  const auto refused = [&](const std::string& name, const Arguments& more, const std::string& part) {
    Arguments arguments{"generate", model(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  refused("t5", {"--prompt", ""}, "the prompt is empty");
  refused("t5", {"--prompt", "w7", "--no-cache"}, "--no-cache");
  refused("t5", {"--prompt", "caf\xE9"}, "not valid UTF-8");
  refused("marian", {"--prompt", "w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7"}, "the model takes 20");
  refused("t5", {"--prompt", "w7", "--beam", "2", "--temperature", "1"}, "a search takes the likeliest");
}

}  // namespace
}  // namespace linnet::testing
