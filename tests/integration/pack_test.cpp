// `linnet pack` and `linnet run`: one file in place of a folder, and batches that are answered in order and gone on
// with.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include "integration/program.h"
#include "integration/word_model.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
const std::string kGolden = LINNET_GOLDEN;

class Pack : public ::testing::Test {
 protected:
  std::string model(const std::string& name) const { return make_word_model(folder_, name); }
  std::string pack(const std::string& folder, const Arguments& options = {}) const {
    const std::string file = folder + (options.empty() ? "" : "-" + options.back()) + ".linnet";
    Arguments arguments{"pack", folder, "-o", file};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return file;
  }
  static std::string output(const Arguments& arguments, const std::string& input = "") {
    const Outcome outcome = run(arguments, {.input = input});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_NE(outcome.out, "");
    return outcome.out;
  }
  TemporaryFolder folder_;
};

TEST_F(Pack, EveryCommandTakesTheFile) {
  const std::string gpt = model("gpt2"), bert = model("bert_model"), classes = model("bert_classifier");
  const std::string run_folder = folder_ / "run";
  ASSERT_EQ(train(run_folder).exit_code, 0);
  const std::vector<std::pair<std::string, std::pair<Arguments, std::string>>> uses{
      {gpt, {{"generate", "", "--prompt", "w5 w6", "--max-tokens", "8", "--json"}, ""}},
      {gpt, {{"score", ""}, "w5 w6 w7\n"}}, {gpt, {{"info", ""}, ""}}, {gpt, {{"tokenizer", "encode", ""}, "w5 w6\n"}},
      {bert, {{"embed", ""}, "w7 w8\nw9\n"}}, {classes, {{"predict", "", "--json"}, "w7 w8\n"}},
      {run_folder, {{"translate", ""}, "14 May 1998\n"}},
      {run_folder, {{"eval", "", "--split", "test", "--json"}, ""}}};
  for (const auto& [folder, use] : uses) {
    const auto on = [&, &use = use](const std::string& path) {
      Arguments arguments = use.first;
      std::ranges::replace(arguments, std::string(), path);
      std::string text = output(arguments, use.second);
      for (size_t at; (at = text.find(path)) != text.npos;) text.replace(at, path.size(), "MODEL");
      return text;
    };
    const std::string whole = on(folder), file = exists(folder + ".linnet") ? folder + ".linnet" : pack(folder);
    if (use.first[0] == "eval") {
      EXPECT_EQ(ParsedJson::parse(on(file))["loss"], ParsedJson::parse(whole)["loss"]);
    } else if (use.first[0] != "info") {
      EXPECT_EQ(on(file), whole) << use.first[0];
    } else {
      EXPECT_NE(on(file).find("gpt2"), std::string::npos);
    }
  }
  // And back to a folder.
  ASSERT_EQ(run({"convert", gpt + ".linnet", folder_ / "back"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "back/model.safetensors"), [&] {
    EXPECT_EQ(run({"convert", gpt, folder_ / "again"}).exit_code, 0);
    return contents(folder_ / "again/model.safetensors");
  }());
  EXPECT_EQ(contents(folder_ / "back/vocab.txt"), contents(gpt + "/vocab.txt"));
  for (const std::string& of_run : {run_folder, run_folder + ".linnet"}) {
    const Outcome refused = run({"convert", of_run, folder_ / "none"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.error.find("is a run; `linnet export"), std::string::npos) << refused.error;
  }
}

// The file gives what the folder gives when it is quantized while it is loaded.
TEST_F(Pack, QuantizedWeightsGiveTheSameTexts) {
  const std::string gpt = model("gpt2"), bert = model("bert_model"), classes = model("bert_classifier");
  const std::string run_folder = folder_ / "run";
  ASSERT_EQ(train(run_folder).exit_code, 0);
  const std::string requests = R"({"prompt": "w5 w6", "max_tokens": 12, "seed": 3})"
                               "\n"
                               R"({"tokens": [7], "max_tokens": 9, "temperature": 0})"
                               "\n";
  const std::vector<std::pair<std::string, std::pair<Arguments, std::string>>> uses{
      {gpt, {{"run", "", "--jsonl"}, requests}}, {gpt, {{"score", ""}, "w5 w6 w7\n"}},
      {bert, {{"embed", ""}, "w7 w8\nw9\n"}}, {bert, {{"run", ""}, "w7 w8\nw9\n"}},
      {classes, {{"predict", "", "--json"}, "w7 w8\n"}}, {run_folder, {{"translate", ""}, "14 May 1998\n"}},
      {run_folder, {{"run", "", "--jsonl"}, R"({"text": "14 May 1998"})"}}};
  for (const char* word : {"bf16", "int8", "int8-weights", "int4-weights"})
    for (const auto& [folder, use] : uses) {
      const std::string file = folder + "-" + word + ".linnet";
      if (!exists(file)) pack(folder, {"--quantize", word});
      Arguments from_file = use.first, from_folder = use.first;
      from_file[1] = file, from_folder[1] = folder;
      from_folder.insert(from_folder.end(), {"--quantize", word});
      EXPECT_EQ(output(from_file, use.second), output(from_folder, use.second)) << word << " " << use.first[0];
    }
  std::string bytes = contents(run_folder + "-int8.linnet");
  EXPECT_EQ(output({"info", run_folder + "-int8.linnet"}).find("nothing saved"), std::string::npos);
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_EQ(run({"info", folder_.write("bad.linnet", bytes)}).exit_code, 2);
}

TEST_F(Pack, AFileSaysHowItsWeightsAreKept) {
  const std::string gpt = model("gpt2");
  const std::string file = pack(gpt, {"--keep", "*.0.*", "--tables", "bf16", "--quantize", "int8"});
  EXPECT_NE(output({"info", file}).find("--quantize int8 --tables bf16"), std::string::npos) << output({"info", file});
  const Outcome other = run({"generate", file, "--prompt", "w5", "--quantize", "int4-weights"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.error.find("was packed with --quantize int8"), std::string::npos) << other.error;
  EXPECT_EQ(run({"pack", gpt, "-o", folder_ / "x.linnet", "--quantize", "int3"}).exit_code, 2);
  EXPECT_EQ(run({"pack", gpt, "-o", folder_ / "x.linnet", "--quantize", "int8", "--keep", "nothing.*"}).exit_code, 2);
  EXPECT_FALSE(exists(folder_ / "x.linnet"));
  // The folder that it is made of again has the numbers that the weights stand for.
  ASSERT_EQ(run({"convert", file, folder_ / "back"}).exit_code, 0);
  const std::string packed_again = folder_ / "again.linnet";
  ASSERT_EQ(run({"pack", folder_ / "back", "-o", packed_again}).exit_code, 0);
  EXPECT_EQ(
      output({"score", file}, "w5 w6 w7\n").substr(0, 4), output({"score", packed_again}, "w5 w6 w7\n").substr(0, 4));
}

TEST_F(Pack, ADamagedFileIsOneLine) {
  const std::string file = pack(model("gpt2")), whole = contents(file);
  std::string altered = whole;
  altered[altered.size() / 2] ^= 1;
  for (const auto& [bytes, what] :
      std::vector<std::pair<std::string, std::string>>{{whole.substr(0, whole.size() / 2), "cut short"},
          {altered, "damaged"}, {"", "empty"}, {"no", "safetensors"}}) {
    folder_.write("bad.linnet", bytes);
    expect_user_error(run({"generate", folder_ / "bad.linnet", "--prompt", "w5"}), what);
    const Outcome answers = run({"run", folder_ / "bad.linnet"}, {.input = "w5 w6\n"});
    expect_user_error(answers, what);
    EXPECT_EQ(answers.out, "");
    EXPECT_EQ(run({"info", folder_ / "bad.linnet"}).exit_code, 2);
    EXPECT_EQ(run({"convert", folder_ / "bad.linnet", folder_ / "back"}).exit_code, 2);
  }
  EXPECT_EQ(run({"pack", folder_ / "gpt2", "-o", file}).exit_code, 2) << "it exists";
  EXPECT_EQ(run({"pack", folder_ / "gpt2", "-o", folder_ / "model.bin"}).exit_code, 2);
  EXPECT_EQ(run({"pack", folder_.path(), "-o", folder_ / "none.linnet"}).exit_code, 2);
  EXPECT_FALSE(exists(folder_ / "none.linnet"));
}

// The file of a loaded model is cut short in its place: what follows ends with an error, and no signal.
TEST_F(Pack, AFileThatIsCutShortWhileItIsUsedIsAnError) {
  for (const char* kind : {"gpt2", "bert_model"}) {
    const std::string file = pack(model(kind)), pipe = folder_ / (std::string(kind) + ".pipe"),
                      answers = folder_ / (std::string(kind) + ".answers");
    const std::string request =
        kind == std::string("gpt2") ? R"({"prompt": "w5 w6", "max_tokens": 3})" : R"({"text": "w7 w8"})";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    Program program({"run", file, "--jsonl", "-o", answers}, {.input_path = pipe});
    std::ofstream requests(pipe);
    // Answers are kept in order, some requests ahead: it takes several requests to see the first one.
    for (int asked = 0; asked < 2000 && (!exists(answers) || contents(answers).empty()); ++asked) {
      requests << request << std::endl;
      ::usleep(5000);
    }
    ::signal(SIGPIPE, SIG_IGN);  // the program may end before the last request is written
    std::filesystem::resize_file(file, 4096);
    for (int i = 0; i < 2; ++i) requests << request << std::endl;
    requests.close();
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.signal, 0) << kind;
    EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
    const std::vector<std::string> lines_of = lines(contents(answers));
    ASSERT_FALSE(lines_of.empty());
    EXPECT_EQ(lines_of[0].find("error"), std::string::npos) << lines_of[0];
    EXPECT_NE((outcome.error + contents(answers)).find("was cut short, or could not be read, while it was in use"),
        std::string::npos)
        << outcome.error;
  }
}

TEST_F(Pack, RunAnswersByWhatTheModelIs) {
  const std::string gpt = pack(model("gpt2")), bert = pack(model("bert_model")),
                    classes = pack(model("bert_classifier"));
  const std::string requests = R"({"prompt": "w5 w6", "max_tokens": 4, "seed": 3, "id": "a"})"
                               "\n\n"
                               R"({"tokens": [7], "max_tokens": 9, "temperature": 0})"
                               "\n";
  EXPECT_EQ(output({"run", gpt, "--jsonl"}, requests), output({"generate", gpt, "--jsonl", "-"}, requests));
  const Arguments kept{"run", gpt, "--jsonl", "-o", folder_ / "answers.jsonl", "--resume"};
  EXPECT_EQ(run(kept, {.input = requests}).exit_code, 0);
  const Outcome other = run(kept, {.input = R"({"prompt": "w5"})"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.error.find("has 1 requests, and 2 are answered: it is another input"), other.error.npos)
      << other.error;
  EXPECT_EQ(output({"run", gpt, "--max-tokens", "5", "--temperature", "0"}, "w5 w6\n"),
      output({"generate", gpt, "--prompt", "w5 w6", "--max-tokens", "5", "--temperature", "0"}));
  EXPECT_EQ(output({"run", bert}, "w7 w8\nw9\n"), output({"embed", bert}, "w7 w8\n") + output({"embed", bert}, "w9\n"));
  const auto predicted = ParsedJson::parse(output({"predict", classes, "--json"}, "w7 w8\n"));
  const auto found = ParsedJson::parse(output({"run", classes, "--jsonl"}, R"({"text": "w7 w8", "id": 5})"));
  EXPECT_EQ(found["label"], predicted["label"]);
  EXPECT_NEAR(found["probability"].get<double>(), predicted["probability"].get<double>(), 1e-6);
  EXPECT_EQ(found["id"], 5);
  const Outcome both = run({"run", classes, "--jsonl"}, {.input = R"({"text": "w7 w8", "prompt": "w9"})"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.out.find("there is no setting \\\"prompt\\\""), both.out.npos) << both.out;
  EXPECT_EQ(run({"run", gpt, "--jsonl"}, {.input = R"({"prompt": "w5", "color": 1})"}).exit_code, 2);
}

TEST_F(Pack, AFileOfAnOlderLinnetGivesTheTextsOfANewOne) {
  const std::string file = pack(model("gpt2"), {"--quantize", "int8"});
  const std::string requests = R"({"prompt": "w5 w6", "max_tokens": 12, "seed": 3})"
                               "\n"
                               R"({"tokens": [7], "max_tokens": 9, "temperature": 0})"
                               "\n";
  EXPECT_EQ(output({"run", kGolden + "/../packed/version2.linnet", "--jsonl"}, requests),
      output({"run", file, "--jsonl"}, requests));
}

// Tables of the tokenizer take the place of what is parsed; they belong to the file alone.
TEST_F(Pack, TheTokenizerOfTheFileIsThatOfTheFolder) {
  const std::string gpt = model("gpt2");
  std::filesystem::remove(gpt + "/vocab.txt");
  const ParsedJson byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  const ParsedJson json{{"added_tokens", {{{"id", 96}, {"content", "<|end|>"}, {"special", true}}}},
      {"pre_tokenizer", byte_level}, {"decoder", byte_level},
      {"model", {{"type", "BPE"},
                    {"vocab", {{"t", 0}, {"h", 1}, {"e", 2}, {"th", 3}, {"the", 4}, {"Ġ", 5}, {"w", 6}, {"Ġw", 7},
                                  {"<|end|>", 96}}},
                    {"merges", {"t h", "th e", "Ġ w"}}}}};
  folder_.write("gpt2/tokenizer.json", json.dump());
  folder_.write("gpt2/tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|end|>"})");
  const std::string file = pack(gpt), text = "the wethe<|end|> whew\n";
  EXPECT_EQ(output({"tokenizer", "encode", file}, text), output({"tokenizer", "encode", gpt}, text));
  EXPECT_EQ(output({"generate", file, "--prompt", "the", "--max-tokens", "6", "--json"}),
      output({"generate", gpt, "--prompt", "the", "--max-tokens", "6", "--json"}));
  EXPECT_NE(contents(file).find("linnet.tokenizer"), std::string::npos);
  ASSERT_EQ(run({"convert", file, folder_ / "back"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "back/tokenizer.json"), json.dump());
  EXPECT_FALSE(exists(folder_ / "back/tokenizer.tables"));
}

TEST_F(Pack, ABatchGoesOnWhereItEnded) {
  const std::string gpt = pack(model("gpt2")), out = folder_ / "out.jsonl";
  std::string requests;
  for (int i = 0; i < 30; ++i)
    requests +=
        R"({"prompt": "w)" + std::to_string(5 + i) + R"(", "max_tokens": 6, "seed": )" + std::to_string(i) + "}\n";
  ASSERT_EQ(run({"run", gpt, "--jsonl", "-o", out}, {.input = requests}).exit_code, 0);
  const std::string whole = contents(out);
  EXPECT_EQ(lines(whole).size(), 30u);
  EXPECT_EQ(run({"run", gpt, "--jsonl", "-o", out}, {.input = requests}).exit_code, 2) << "the file exists";
  for (const size_t size : {whole.size() / 3, whole.find('\n') + 1, size_t{0}, whole.size()}) {
    folder_.write("out.jsonl", whole.substr(0, size));
    const Outcome outcome = run({"run", gpt, "--jsonl", "-o", out, "--resume"}, {.input = requests});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(contents(out), whole) << "from " << size << " bytes";
  }
  folder_.write("out.jsonl", "something else\n");
  EXPECT_EQ(run({"run", gpt, "--jsonl", "-o", out, "--resume"}, {.input = requests}).exit_code, 2);
  EXPECT_EQ(contents(out), "something else\n");
}

TEST_F(Pack, AWrongRequestOfABatchIsAnsweredByWhatIsWrong) {
  const std::string gpt = pack(model("gpt2")), good = R"({"prompt": "w5", "max_tokens": 3})"
                                                      "\n";
  const std::string wrong = R"({"id": "b", "prompt": "w5", "max_tokens": "many"})"
                            "\n";
  const Outcome outcome = run({"run", gpt, "--jsonl"}, {.input = good + "oh\n" + wrong + good, .log = "warning"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.error.find("2 requests are wrong"), outcome.error.npos) << outcome.error;
  const std::vector<std::string> answers = lines(outcome.out);
  ASSERT_EQ(answers.size(), 4u) << outcome.out;
  const auto first = ParsedJson::parse(answers[0]), second = ParsedJson::parse(answers[1]),
             third = ParsedJson::parse(answers[2]), last = ParsedJson::parse(answers[3]);
  EXPECT_EQ(last["text"], first["text"]);
  EXPECT_EQ(last["request"], 3);
  EXPECT_EQ(second["request"], 1);
  EXPECT_NE(second["error"].get<std::string>().find("line 2"), std::string::npos);
  EXPECT_EQ(third["id"], "b");
  EXPECT_NE(third["error"].get<std::string>().find("max_tokens"), std::string::npos);
}
}  // namespace
}  // namespace linnet::testing
