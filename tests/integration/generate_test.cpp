// `linnet generate` on the tiny model folders of tests/golden: what transformers writes, streamed or not, until Ctrl-C.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
const std::string kGolden = LINNET_GOLDEN, kAdapters = kGolden + "/../lora";

// Token 17 is the word "w17".
std::string text_of(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "w" : " w") + std::to_string(id);
  return text;
}

constexpr int kLanguages[] = {58, 59};  // of source and target, in models of many languages

bool knows_languages(const std::string& model) { return model == "mbart" || model == "m2m_100"; }

// What the program prints of these tokens: a decoder's text follows the prompt, so it begins with a space.
std::string printed(const std::string& model, std::vector<int> ids) {
  const bool answers = !model.starts_with("gpt") && !model.starts_with("llama");
  if (knows_languages(model)) std::erase_if(ids, [](int id) { return id == kLanguages[0] || id == kLanguages[1]; });
  return (answers || ids.empty() ? "" : " ") + text_of(ids) + "\n";
}

// A tokenizer of words, of which two are languages.
void use_language_tokenizer(const std::string& folder, const std::string& kind) {
  using json = ParsedJson;
  const int size = json::parse(contents(folder + "/config.json"))["vocab_size"];
  json words, added = json::array();
  for (int id = 0; id < size; ++id) words["w" + std::to_string(id)] = id;
  for (const int id : kLanguages)
    added.push_back({{"id", id}, {"content", "w" + std::to_string(id)}, {"special", true}});
  const json tokenizer = {{"added_tokens", added}, {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}},
      {"model", {{"type", "WordPiece"}, {"unk_token", "w3"}, {"continuing_subword_prefix", "##"},
                    {"max_input_chars_per_word", 100}, {"vocab", words}}}};
  std::ofstream(folder + "/tokenizer.json") << tokenizer.dump();
  std::ofstream(folder + "/tokenizer_config.json")
      << json{{"tokenizer_class", kind}, {"src_lang", "w58"}, {"tgt_lang", "w59"}}.dump();
}

class Generate : public ::testing::Test {
 protected:
  // A model folder with a tokenizer of such words.
  std::string model(const std::string& name) const {
    const std::string folder = folder_ / name;
    if (exists(folder)) return folder;
    copy_folder(kGolden + "/" + name, folder);
    if (knows_languages(name)) {
      use_language_tokenizer(folder, name == "mbart" ? "MBartTokenizer" : "M2M100Tokenizer");
      return folder;
    }
    const int size = ParsedJson::parse(contents(folder + "/config.json"))["vocab_size"];
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
  const auto golden = ParsedJson::parse(contents(kGolden + "/generated.json"));
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
  const auto golden = ParsedJson::parse(contents(kGolden + "/searched.json"));
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
  using json = ParsedJson;
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
  const json tokenizer = {{"added_tokens", added}, {"pre_tokenizer", space}, {"decoder", space},
      {"post_processor",
          {{"type", "TemplateProcessing"}, {"single", json::array({begin, text})}, {"pair", json::array({begin, text})},
              {"special_tokens",
                  {{"<s>", {{"id", "<s>"}, {"ids", json::array({1})}, {"tokens", json::array({"<s>"})}}}}}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", tokens}}}};
  std::ofstream(folder + "/tokenizer.json") << tokenizer.dump();
}

// As `linnet generate | head -1` and other commands end.
TEST_F(Generate, EndsWhenNobodyReadsOn) {
  std::string prompts;
  for (int i = 0; i < 200; ++i) prompts += "w5 w6\n";
  folder_.write("prompts", prompts);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_GT(::fcntl(reader, F_SETPIPE_SZ, 4096), 0);  // less than the program writes
  Program program({"generate", model("gpt2"), "--prompts", folder_ / "prompts", "--json", "--max-tokens", "2"},
      {.output_path = pipe});
  pollfd written{reader, POLLIN, 0};
  EXPECT_EQ(::poll(&written, 1, 60'000), 1);
  ::close(reader);
  EXPECT_EQ(program.wait().signal, SIGPIPE);
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
  EXPECT_EQ(
      generate("llama", {"--prompt", "w30 w52", "--beam", "1", "--temperature", "0", "--max-tokens", "6"}), words);
}

// Each line of JSON is scored as transformers scores tokenizer(text) and the end token.
TEST_F(Generate, DocumentsBeginWithTheTokenOfTheTemplate) {
  const std::string folder = model("llama");
  const auto loss = [&](const std::string& file) {
    const Outcome outcome = run({"eval", folder, "--data", file, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out);
  };
  const auto one = loss(folder_.write("one.txt", "w1 w30 w52 w6 w2"));
  const auto two = loss(folder_.write("two.txt", "w1 w7 w8 w2"));
  use_metaspace_tokenizer(folder);
  const auto packed = loss(folder_.write("documents.jsonl", "{\"text\": \"w30 w52 w6\"}\n{\"text\": \"w7 w8\"}\n"));
  EXPECT_EQ(packed["tokens"], 7);  // of both documents, with </s> and without <s>
  EXPECT_NEAR(packed["loss"].get<double>() * 7, one["loss"].get<double>() * 4 + two["loss"].get<double>() * 3, 1e-4);
  EXPECT_EQ(loss(folder_.write("plain.txt", "w30 w52 w6 w2"))["tokens"], 4);
}

using Json = ParsedJson;

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> result;
  for (const std::string& line : lines(text)) result.push_back(Json::parse(line));
  return result;
}

TEST_F(Generate, ManyPromptsAreWrittenAsEachByItself) {
  for (const char* name : {"llama", "t5_gated"}) {
    const Arguments settings{"--max-tokens", "6", "--seed", "3", "--temperature", "0.9"};
    std::vector<std::string> prompts{
        "w30 w52 w6", "w7", "w30 w30 w9 w8 w7 w6 w5 w4 w30 w52 w41 w9 w11 w12 w13 w14 w15 w16"};
    std::string want;
    for (const std::string& prompt : prompts) {
      Arguments one{"--prompt", prompt};
      one.insert(one.end(), settings.begin(), settings.end());
      want += (want.empty() ? "" : "\n") + generate(name, one);
    }
    Arguments many{"--prompts", folder_.write("prompts.txt", prompts[0] + "\r\n" + prompts[1] + "\n" + prompts[2])};
    many.insert(many.end(), settings.begin(), settings.end());
    EXPECT_EQ(generate(name, many), want) << name;
    many[1] = "-";
    Arguments all{"generate", model(name)};
    all.insert(all.end(), many.begin(), many.end());
    EXPECT_EQ(run(all, {.input = contents(folder_ / "prompts.txt")}).out, want) << name;
  }
}

TEST_F(Generate, RequestsHaveSettingsOfTheirOwn) {
  const std::string requests = folder_.write("requests.jsonl",
      "{\"prompt\": \"w30 w52 w6\", \"temperature\": 0, \"max_tokens\": 5, \"id\": {\"a\": [1]}}\r\n\n"
      "{\"tokens\": [30, 52, 6], \"temperature\": 0, \"max_tokens\": 9}\n"
      "{\"prompt\": \"w30 w52 w6\", \"beam\": 3, \"max_tokens\": 4}\n"
      "{\"prompt\": \"w7\", \"seed\": 5}");
  const std::vector<Json> texts = json_lines(generate("llama", {"--jsonl", requests, "--max-tokens", "3"}));
  ASSERT_EQ(texts.size(), 4u);
  const auto text = [&](const Arguments& arguments) {
    const std::string printed = generate("llama", arguments);
    return printed.substr(0, printed.size() - 1);
  };
  const Arguments prompt{"--prompt", "w30 w52 w6"};
  EXPECT_EQ(texts[0]["text"], text({"--prompt", "w30 w52 w6", "--temperature", "0", "--max-tokens", "5"}));
  EXPECT_EQ(texts[1]["text"], text({"--prompt", "w30 w52 w6", "--temperature", "0", "--max-tokens", "9"}));
  EXPECT_EQ(texts[2]["text"], text({"--prompt", "w30 w52 w6", "--beam", "3", "--max-tokens", "4"}));
  EXPECT_EQ(texts[3]["text"], text({"--prompt", "w7", "--seed", "5", "--max-tokens", "3"}));
  EXPECT_EQ(texts[0]["id"], Json::parse("{\"a\": [1]}"));
  EXPECT_EQ(texts[1]["request"], 1);
  EXPECT_EQ(texts[1]["prompt_tokens"], (std::vector<int>{30, 52, 6}));
  EXPECT_EQ(" " + text_of(texts[1]["tokens"]), texts[1]["text"].get<std::string>());
  EXPECT_EQ(texts[0]["end"], "length");
  EXPECT_FALSE(texts[0].contains("end_token"));
}

// The requests of a list are written at once, and each gets the bits that it gets alone: log probabilities, too.
TEST_F(Generate, RequestsOfAListGiveWhatTheyGiveAlone) {
  const std::string folder = model("llama");
  std::vector<std::string> requests;
  for (int i = 0; i < 12; ++i) {
    std::vector<int> tokens;
    for (int t = 0; t <= 5 * i % 23; ++t) tokens.push_back((7 * t + i) % 50 + 4);
    Json request{{"tokens", tokens}, {"max_tokens", 1 + 3 * i % 8}, {"seed", i}, {"id", i}};
    if (i % 4 == 1) request["beam"] = 3;
    if (i % 4 == 2) request["temperature"] = 0;
    requests.push_back(request.dump() + "\n");
  }
  std::string all;
  for (const std::string& request : requests) all += request;
  const std::vector<Json> together = json_lines(run({"generate", folder, "--jsonl", "-"}, {.input = all}).out);
  ASSERT_EQ(together.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Json alone = json_lines(run({"generate", folder, "--jsonl", "-"}, {.input = requests[i]}).out).at(0);
    alone["request"] = i;
    EXPECT_EQ(together[i], alone);
  }
}

// With a larger vocabulary, and the tokenizer that they were trained with.
TEST_F(Generate, AdaptersMayBringTokensOfTheirOwn) {
  const std::string base = model("llama"), adapters = folder_ / "adapters", merged = folder_ / "merged";
  copy_folder(kAdapters + "/llama_tokens", adapters);
  folder_.write("adapters/tokenizer.json", R"({"model": {"type": "WordLevel", "unk_token": "a",
      "vocab": {"a": 0, "b": 5, "new": 98}}, "pre_tokenizer": {"type": "Whitespace"}})");
  ASSERT_EQ(run({"convert", base, merged, "--merge", adapters}).exit_code, 0);
  std::vector<Json> written;
  for (const Arguments& from : {Arguments{base, "--adapter", adapters}, Arguments{merged}}) {
    Arguments arguments{"generate", "--prompt", "b new", "--max-tokens", "8", "--temperature", "0", "--json"};
    arguments.insert(arguments.end(), from.begin(), from.end());
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const Json text = json_lines(outcome.out).at(0);
    EXPECT_EQ(text["prompt_tokens"], Json({5, 98}));
    written.push_back(text["tokens"]);
  }
  EXPECT_EQ(written[0], written[1]);
  ASSERT_EQ(run({"pack", base, "-o", folder_ / "base.linnet"}).exit_code, 0);
  const Outcome packed = run({"generate", folder_ / "base.linnet", "--adapter", adapters, "--prompt", "b"});
  EXPECT_EQ(packed.exit_code, 2);
  EXPECT_NE(packed.error.find("the adapters have tokens of their own"), std::string::npos) << packed.error;
}

// Adapters beside the weights write what merged ones do. Several on one base, which each request chooses, write in one
// batch what each of them writes alone.
TEST_F(Generate, AdaptersOnOneBaseWriteWhatEachWritesAlone) {
  const std::string base = model("gpt2"), weak = kAdapters + "/gpt2", strong = folder_ / "strong";
  copy_folder(weak, strong);
  Json config = Json::parse(contents(weak + "/adapter_config.json"));
  config["lora_alpha"] = 5 * config["lora_alpha"].get<double>();
  folder_.write("strong/adapter_config.json", config.dump());
  ASSERT_EQ(run({"convert", base, folder_ / "merged", "--merge", strong}).exit_code, 0);

  const auto request = [](const Json& adapter) {
    Json json{{"tokens", {5, 9, 31}}, {"temperature", 0}, {"max_tokens", 12}};
    if (adapter != "") json["adapter"] = adapter;
    return json.dump() + "\n";
  };
  const auto written = [&](const std::string& command, Arguments arguments, const std::string& requests) {
    arguments.insert(arguments.begin(), command);
    arguments.emplace_back("--jsonl");
    if (command == "generate") arguments.emplace_back("-");
    const Outcome outcome = run(arguments, {.input = requests});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    std::vector<Json> tokens;
    for (const Json& line : json_lines(outcome.out)) tokens.push_back(line["tokens"]);
    return tokens;
  };
  const Json plain = written("generate", {base}, request("")).at(0),
             of_weak = written("generate", {base, "--adapter", weak}, request("")).at(0),
             of_strong = written("generate", {base, "--adapter", strong}, request("")).at(0);
  EXPECT_NE(plain, of_strong);
  EXPECT_NE(of_weak, of_strong);
  EXPECT_EQ(written("generate", {folder_ / "merged"}, request("")).at(0), of_strong);

  const Arguments sets{base, "--adapter", "strong=" + strong, "--adapter", "weak=" + weak};
  const std::string requests = request("") + request("strong") + request(nullptr) + request("weak");
  const std::vector<Json> expected{plain, of_strong, plain, of_weak};
  EXPECT_EQ(written("generate", sets, requests), expected);
  EXPECT_EQ(written("run", sets, requests), expected);
  // A draft model knows none of the adapters, and changes nothing but the speed.
  Arguments drafted = sets;
  drafted.insert(drafted.end(), {"--draft", base, "--draft-tokens", "3"});
  EXPECT_EQ(written("generate", drafted, requests), expected);
  // On a base of 8-bit weights, adapters stay those that were trained.
  Arguments quantized = sets, alone{base, "--adapter", strong};
  for (Arguments* arguments : {&quantized, &alone}) arguments->insert(arguments->end(), {"--quantize", "int8-weights"});
  EXPECT_EQ(written("generate", quantized, requests).at(1), written("generate", alone, request("")).at(0));

  Arguments wrong{"generate", "--jsonl", "-"};
  wrong.insert(wrong.end(), sets.begin(), sets.end());
  const Outcome outcome = run(wrong, {.input = request("week")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.error.find("line 1: there are no adapters \"week\"; there are strong, weak"), std::string::npos)
      << outcome.error;
}

// The log probabilities of what was written are those that scoring the same text gives.
TEST_F(Generate, LogProbabilitiesAreThoseOfScoring) {
  const Json written = Json::parse(generate("llama",
      {"--prompt", "w30 w52", "--max-tokens", "8", "--temperature", "1.3", "--ignore-end", "--json", "--seed", "2"}));
  const auto nats = [&](const std::string& text) {
    const Outcome outcome = run({"eval", model("llama"), "--data", folder_.write("text.txt", text), "--json"});
    const Json json = Json::parse(outcome.out);
    return json["loss"].get<double>() * json["tokens"].get<double>();
  };
  const double want = nats("w30 w52") - nats("w30 w52" + written["text"].get<std::string>());
  EXPECT_NEAR(written["log_probability"], want, 1e-3);
  double sum = 0;
  for (const double one : written["log_probabilities"]) sum += one;
  EXPECT_NEAR(sum, want, 1e-3);
  EXPECT_EQ(written["log_probabilities"].size(), 8u);
}

TEST_F(Generate, AStopTextEndsATextBeforeIt) {
  for (const char* name : {"llama", "t5_gated"}) {
    const Arguments all{"--prompt", "w30 w52 w6", "--temperature", "0", "--max-tokens", "12", "--ignore-end"};
    std::string whole = generate(name, all);
    whole.pop_back();
    // A text across two tokens, of which the first alone is also shown when something else follows.
    const size_t at = whole.find(' ', whole.size() / 2), from = at + 2, size = whole.find(' ', at + 1) + 2 - from;
    Arguments stopped = all;
    stopped.insert(stopped.end(), {"--stop", "no such text", "--stop", whole.substr(from, size)});
    const std::string want = whole.substr(0, whole.find(whole.substr(from, size)));
    EXPECT_EQ(generate(name, stopped), want + "\n") << name << ": " << whole;
    stopped.emplace_back("--json");
    const Json json = Json::parse(generate(name, stopped));
    EXPECT_EQ(json["end"], "stop");
    EXPECT_EQ(json["text"], want);
    stopped.insert(stopped.end(), {"--samples", "2"});
    for (const Json& one : json_lines(generate(name, stopped))) EXPECT_EQ(one["text"], want);
  }
}

TEST_F(Generate, AChatTemplatePutsTheQuestion) {
  const Arguments settings{"--temperature", "0", "--max-tokens", "5"};
  const auto with = [&](Arguments arguments) {
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return generate("llama", arguments);
  };
  const std::string want = with({"--prompt", "w7 w41 w9 w7 w30 w52 w9 w8"}).substr(1);  // an answer has no first space
  model("llama");
  const std::string source =
      "{% for m in messages %}w7 {{ m.content }} w9 {% endfor %}\n{% if add_generation_prompt %}w8{% endif %}";
  folder_.write("llama/tokenizer_config.json", Json{{"chat_template", source}}.dump());
  EXPECT_EQ(with({"--prompt", "w30 w52", "--chat", "--system", "w41"}), want);
  const std::string messages =
      "{\"messages\": [{\"role\": \"system\", \"content\": \"w41\"}, {\"role\": \"user\", \"content\": \"w30 w52\"}]}";
  EXPECT_EQ(
      Json::parse(with({"--jsonl", folder_.write("chat.jsonl", messages)}))["text"].get<std::string>() + "\n", want);
  const std::string parts =
      R"({"messages": [{"role": "developer", "content": "w41"}, )"
      R"({"role": "user", "content": [{"type": "text", "text": "w30 "}, {"type": "text", "text": "w52"}]}]})";
  EXPECT_EQ(Json::parse(with({"--jsonl", folder_.write("chat.jsonl", parts)}))["text"].get<std::string>() + "\n", want);
  // Null stands for a key that is not there.
  folder_.write("llama/tokenizer_config.json",
      Json{{"sep_token", "w9"}, {"chat_template",
                                    "{% for m in messages %}w7 {{ m.content }} {% if 'tool_calls' in m %}w5 "
                                    "{% endif %}{{ sep_token }} {% endfor %}w8"}}
          .dump());
  const std::string nulls = messages.substr(0, messages.size() - 3) + ", \"tool_calls\": null}]}";
  EXPECT_EQ(Json::parse(with({"--jsonl", folder_.write("chat.jsonl", nulls)}))["text"].get<std::string>() + "\n", want);
  folder_.write("llama/tokenizer_config.json", "{}");
  folder_.write("llama/chat_template.jinja", source);
  EXPECT_EQ(with({"--prompt", "w30 w52", "--chat", "--system", "w41"}), want);
}

TEST_F(Generate, AFolderWithoutATokenizerTakesTokenNumbers) {
  const Arguments settings{"--temperature", "0", "--max-tokens", "4", "--json", "--prompt"};
  const auto tokens = [&](const std::string& prompt) {
    Arguments arguments = settings;
    arguments.push_back(prompt);
    return Json::parse(generate("llama", arguments))["tokens"];
  };
  const Json want = tokens("w30 w52");
  std::filesystem::remove(model("llama") + "/vocab.txt");
  EXPECT_EQ(tokens("30 52"), want);
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
    expect_user_error(run(arguments), part);
  };
  refused("t5", {"--prompt", ""}, "the prompt is empty");
  refused("t5", {"--prompt", "w7", "--no-cache"}, "--no-cache");
  refused("t5", {"--prompt", "caf\xE9"}, "not valid UTF-8");
  refused("marian", {"--prompt", "w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7 w7"}, "the model takes 20");
  refused("t5", {"--prompt", "w7", "--beam", "2", "--temperature", "1"}, "a search takes the likeliest");
  for (const char* number : {"nan", "inf", "-inf", "1e999"})
    refused("llama", {"--prompt", "w7", "--length-penalty", number}, "is not a finite number");
  refused("llama", {"--prompt", "w7", "--prompts", "-"}, "give one of");
  refused("llama", {"--prompt", "w7", "--stop", ""}, "a stop text is empty");
  refused("llama", {"--prompt", "w7", "--stop", "w", "--beam", "2"}, "either --beam or --stop");
  refused("llama", {"--prompt", "w7", "--chat"}, "has no chat template");
  refused("llama", {"--prompts", "/no/such"}, "/no/such");
  refused("llama", {"--prompts", "/dev/null"}, "holds no prompt");  // read as a pipe would be
  refused("llama", {"--prompts", folder_.write("empty", "")}, "holds no prompt");
  refused("llama", {"--prompts", folder_.write("latin", "w7\ncaf\xE9\n")}, "line 2: byte 4 is not valid UTF-8");
  refused("t5", {"--prompts", folder_.write("blank", "w7\n\nw8\n")}, "line 2 is empty");
  const Outcome closed = run({"generate", model("llama")}, {.closed_input = true});
  EXPECT_EQ(closed.exit_code, 2);
  EXPECT_EQ(closed.error, "linnet: standard input is closed; --prompt TEXT gives a prompt\n");
}

TEST_F(Generate, AnInterruptEndsARunThatWaitsForALine) {
  const Terminal terminal("w30 w52\n");
  const std::string out = folder_ / "out";
  Program program(
      {"run", model("llama"), "--max-tokens", "3"}, {.input_path = terminal.path(), .output_path = out, .log = "info"});
  for (int i = 0; i < 1000 && contents(out).empty() && program.running(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(program.running());
  program.send(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error << outcome.signal;
  EXPECT_NE(outcome.error.find("interrupted after 1 answer"), std::string::npos) << outcome.error;
}

TEST_F(Generate, ATerminalIsToldThatItsPromptIsAwaitedAndEndsItOnce) {
  const Terminal terminal("w30 w52\n\x04");  // Ctrl-D
  const Arguments settings{"generate", model("llama"), "--temperature", "0", "--max-tokens", "3"};
  const Outcome outcome = run(settings, {.input_path = terminal.path(), .log = "info"});
  EXPECT_EQ(outcome.out, generate("llama", {"--prompt", "w30 w52", "--temperature", "0", "--max-tokens", "3"}));
  EXPECT_NE(outcome.error.find("reading from the terminal"), std::string::npos) << outcome.error;
}

TEST_F(Generate, ABrokenRequestIsNamedBeforeAnythingIsWritten) {
  const auto refused = [&](const std::string& line, const std::string& part) {
    const std::string path = folder_.write("broken.jsonl", "{\"prompt\": \"w7\"}\n" + line + "\n");
    const Outcome outcome = run({"generate", model("llama"), "--jsonl", path});
    EXPECT_EQ(outcome.exit_code, 2) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find("broken.jsonl', line 2"), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  };
  refused("{\"prompt\": \"w7\"", "not JSON");
  refused("[1]", "not a JSON object");
  refused(std::string(5000, '['), "nests deeper");
  std::string tokens = "7";
  for (int i = 0; i < 100'000; ++i) tokens += ",7";
  refused("{\"tokens\": [" + tokens + "]}", "has more than 100000 values");
  refused("{}", "needs one of");
  refused("{\"prompt\": \"w7\", \"tokens\": [7]}", "needs one of");
  refused("{\"prompt\": 7}", "\"prompt\" is not a string");
  refused("{\"prompt\": \"w7\", \"temprature\": 1}", "did you mean \"temperature\"");
  refused("{\"prompt\": \"w7\", \"temperature\": \"hot\"}", "\"temperature\" is not a number");
  refused("{\"prompt\": \"w7\", \"temperature\": 1e999}", "not JSON");
  refused("{\"prompt\": \"w7\", \"top_p\": 0}", "\"top_p\"");
  refused("{\"prompt\": \"w7\", \"max_tokens\": 0}", "from 1 to 1000000000");
  refused("{\"prompt\": \"w7\", \"max_tokens\": 18446744073709551615}", "from 1 to 1000000000");
  refused("{\"prompt\": \"w7\", \"stop\": [\"\"]}", "empty text");
  refused("{\"tokens\": []}", "list of token ids");
  refused("{\"tokens\": [97]}", "there is no token 97");
  refused("{\"tokens\": [-1]}", "list of token ids");
  refused("{\"tokens\": [1e99]}", "list of token ids");
  refused("{\"messages\": []}", "\"messages\" is an empty list");
  refused("{\"messages\": [{\"role\": 1}]}", "\"role\"");
}
}  // namespace
}  // namespace linnet::testing
