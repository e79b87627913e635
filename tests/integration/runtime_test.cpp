// liblinnet_c.so: packed models answer as the folders that they were made of, bit for bit, and what it does not need is
// not loaded.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linnet/linnet_c.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include "integration/program.h"
#include "integration/word_model.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
// The C interface as one shared library has it.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw std::runtime_error(dlerror());
  }
  template <class Pointer> Pointer get(const char* name) const {
    return reinterpret_cast<Pointer>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};
#define CALL(library, function) (library).get<decltype(&::function)>(#function)

const Library& library() {
  static const Library library(LINNET_C_LIBRARY);
  return library;
}

class Model {
 public:
  // `quantize`: null for what is packed.
  Model(const std::string& path, const char* quantize) {
    linnet_model_options options;
    CALL(library_, linnet_model_options_init)(&options);
    options.quantize = quantize;
    EXPECT_EQ(CALL(library_, linnet_model_open)(path.c_str(), &options, &model_), LINNET_OK) << path << ": " << error();
  }
  ~Model() { CALL(library_, linnet_model_close)(model_); }

  std::string error() const { return CALL(library_, linnet_last_error)(); }
  // What the model makes of a text, by what it is: a text, or numbers to their last bit.
  std::string answer(const std::string& text) const {
    if (!model_) return "";
    const auto kind = CALL(library_, linnet_model_get_kind)(model_);
    if (kind == LINNET_LANGUAGE || kind == LINNET_TRANSLATION) return written(text, kind);
    std::vector<float> row(CALL(library_, linnet_model_width)(model_));
    const char* const texts[] = {text.c_str()};
    const auto compute = kind == LINNET_CLASSIFIER ? CALL(library_, linnet_classify) : CALL(library_, linnet_embed);
    EXPECT_EQ(compute(model_, texts, 1, row.data()), LINNET_OK) << error();
    std::ostringstream numbers;
    for (const float number : row) numbers << std::hexfloat << number << ' ';
    return numbers.str();
  }

 private:
  // A sampled text, which goes on where the model would end it; of a translator the translation before it.
  std::string written(const std::string& text, linnet_model_kind kind) const {
    linnet_generate_options options;
    CALL(library_, linnet_generate_options_init)(&options);
    options.max_tokens = 12, options.seed = 7, options.ignore_end = 1, options.beams = 1;
    char *translation = nullptr, *sampled = nullptr;
    if (kind == LINNET_TRANSLATION)
      EXPECT_EQ(CALL(library_, linnet_translate)(model_, text.c_str(), &translation), LINNET_OK) << error();
    EXPECT_EQ(CALL(library_, linnet_generate)(model_, text.c_str(), &options, nullptr, nullptr, &sampled), LINNET_OK)
        << error();
    const std::string whole = std::string(translation ? translation : "") + "|" + (sampled ? sampled : "");
    CALL(library_, linnet_string_free)(translation);
    CALL(library_, linnet_string_free)(sampled);
    return whole;
  }

  const Library& library_ = library();
  linnet_model* model_ = nullptr;
};

class Runtime : public ::testing::Test {
 protected:
  std::string model(const std::string& name) const { return make_word_model(folder_, name); }
  std::string pack(const std::string& folder, const std::string& word) const {
    const std::string file = folder + "-" + word + ".linnet";
    const Outcome outcome = run({"pack", folder, "-o", file, "--quantize", word});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return file;
  }
  // What is packed with such weights answers texts as the folder does that is opened with them. Returns the answers'
  // length.
  size_t expect_equal(const std::string& folder, const std::string& word, const std::vector<std::string>& texts) const {
    const Model packed(pack(folder, word), nullptr), opened(folder, word == "none" ? nullptr : word.c_str());
    size_t length = 0;
    for (const std::string& text : texts) {
      const std::string answer = packed.answer(text);
      EXPECT_EQ(answer, opened.answer(text)) << folder << ", " << word << ": " << text;
      length += answer.size();
    }
    return length;
  }
  TemporaryFolder folder_;
};

bool is_loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(library) != line.npos) return true;
  return false;
}

TEST_F(Runtime, PackedFoldersAnswerAsTheFolders) {
  const std::string long_text = [] {
    std::string text;
    for (int i = 5; i < 17; ++i) text += "w" + std::to_string(i) + " ";
    return text;
  }();
  for (const char* name : {"gpt2", "llama", "qwen2", "mistral", "marian", "bert_model", "bert_classifier"}) {
    const std::string folder = model(name);
    for (const char* word : {"none", "bf16", "int8", "int8-weights", "int4-weights"})
      EXPECT_GT(expect_equal(folder, word, {"w7 w8 w9", long_text, "w30"}), 50u) << name;
  }
}

TEST_F(Runtime, PackedRunsAnswerAsTheRuns) {
  for (const char* tokenizer : {"char", "sentencepiece"}) {
    const std::string folder = folder_ / tokenizer;
    const Outcome trained = train(folder, {std::string("data.tokenizer=") + tokenizer, "data.vocab_size=60"});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    for (const char* word : {"none", "int8"})
      EXPECT_GT(expect_equal(folder, word, {"14 May 1998", "3 June 2001"}), 1u) << tokenizer;
  }
  // An encoder-decoder that other programs know, with SentencePiece of its own.
  const std::string t5 = folder_ / "t5";
  ASSERT_EQ(train(t5, {"model.architecture=t5", "data.tokenizer=sentencepiece", "data.vocab_size=60",
                          "data.joint_vocab=true"})
                .exit_code,
      0);
  EXPECT_GT(expect_equal(t5, "none", {"14 May 1998", "3 June 2001"}), 1u);
}

TEST_F(Runtime, NoTextNeedsAnotherLibrary) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string file = pack(model("bert_model"), "none");
  EXPECT_EXIT(
      {
        const Model model(file, nullptr);
        const std::string plain = model.answer("w7 w8 w9");
        if (plain.empty()) std::exit(1);
        // The accent is taken off, which takes Unicode's tables.
        if (model.answer("ẃ7 w8 w9") != plain) std::exit(2);
        std::exit(is_loaded("libicu") || is_loaded("libutf8proc") || is_loaded("libsentencepiece") ? 3 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(Runtime, WhatItDoesNotRunIsAUserError) {
  folder_.write("broken.linnet", "no model");
  linnet_model* none = nullptr;
  EXPECT_EQ(CALL(library(), linnet_model_open)((folder_ / "broken.linnet").c_str(), nullptr, &none), LINNET_USER_ERROR);
  EXPECT_STRNE(CALL(library(), linnet_last_error)(), "");
}

// The weights are compared behind the first step: no text of damaged ones is finished.
TEST_F(Runtime, AlteredWeightsAreFoundBeforeATextIsFinished) {
  for (const char* word : {"none", "int8"}) {
    const std::string file = pack(model("gpt2"), word);
    std::string bytes = contents(file);
    bytes[8192] ^= 1;  // weights begin at a page behind the header
    folder_.write("altered.linnet", bytes);
    linnet_model* model = nullptr;
    ASSERT_EQ(CALL(library(), linnet_model_open)((folder_ / "altered.linnet").c_str(), nullptr, &model), LINNET_OK);
    linnet_generate_options options;
    CALL(library(), linnet_generate_options_init)(&options);
    options.max_tokens = 4;
    for (int i = 0; i < 2; ++i) {
      char* text = nullptr;
      EXPECT_EQ(CALL(library(), linnet_generate)(model, "w5 w6", &options, nullptr, nullptr, &text), LINNET_USER_ERROR);
      EXPECT_EQ(text, nullptr);
      EXPECT_NE(std::string(CALL(library(), linnet_last_error)()).find("damaged"), std::string::npos);
    }
    CALL(library(), linnet_model_close)(model);
    std::filesystem::remove_all(folder_ / "gpt2");
  }
}
}  // namespace
}  // namespace linnet::testing
