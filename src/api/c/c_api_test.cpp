// The C interface as a program uses it: what models answer, codes for mistakes, and many threads on one handle.
#include <gtest/gtest.h>
#include <linnet/linnet_c.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>
#include "golden_folder.h"

namespace {
using Folder = linnet::testing::GoldenFolder;

class Model {
 public:
  explicit Model(const Folder& folder, const char* quantize = nullptr) {
    linnet_model_options options;
    linnet_model_options_init(&options);
    options.quantize = quantize;
    EXPECT_EQ(linnet_model_open(folder.path().c_str(), &options, &model_), LINNET_OK) << linnet_last_error();
  }
  ~Model() { linnet_model_close(model_); }
  linnet_model* get() const { return model_; }

 private:
  linnet_model* model_ = nullptr;
};

std::vector<float> embed(linnet_model* model, const std::vector<const char*>& texts) {
  std::vector<float> rows(texts.size() * linnet_model_width(model));
  EXPECT_EQ(linnet_embed(model, texts.data(), texts.size(), rows.data()), LINNET_OK) << linnet_last_error();
  return rows;
}

std::string generate(linnet_model* model, const std::string& prompt, uint64_t seed) {
  linnet_generate_options options;
  linnet_generate_options_init(&options);
  options.max_tokens = 12, options.seed = seed, options.ignore_end = 1;
  char* text = nullptr;
  EXPECT_EQ(linnet_generate(model, prompt.c_str(), &options, nullptr, nullptr, &text), LINNET_OK)
      << linnet_last_error();
  const std::string result = text ? text : "";
  linnet_string_free(text);
  return result;
}

void in_threads(int count, const std::function<void(int)>& action) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(action, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(CInterface, EightThreadsOnOneHandleGetTheBitsOfOne) {
  const Folder encoder("bert_model", 90), writer("gpt2", 90);
  const Model embedder(encoder), language(writer);
  const std::vector<const char*> texts{"w7 w8 w9", "w10", "w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 w17 w18"};
  const std::vector<float> alone = embed(embedder.get(), texts);
  ASSERT_GT(linnet_model_width(embedder.get()), 0u);
  std::vector<std::string> written;
  for (int i = 0; i < 8; ++i) written.push_back(generate(language.get(), "w5 w" + std::to_string(6 + i), 3));
  in_threads(8, [&](int thread) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      EXPECT_EQ(embed(embedder.get(), texts), alone);
      const std::vector<float> one = embed(embedder.get(), {texts[static_cast<size_t>(thread) % 3]});
      const auto width = static_cast<std::ptrdiff_t>(one.size());
      const auto from = alone.begin() + (thread % 3) * width;
      EXPECT_EQ(one, std::vector<float>(from, from + width));
      EXPECT_EQ(generate(language.get(), "w5 w" + std::to_string(6 + thread), 3), written[static_cast<size_t>(thread)]);
    }
  });
}

TEST(CInterface, ACallbackHearsTheTextAndEndsIt) {
  const Folder folder("gpt2", 90);
  const Model model(folder);
  linnet_generate_options options;
  linnet_generate_options_init(&options);
  options.max_tokens = 10, options.temperature = 0, options.ignore_end = 1;
  struct Heard {
    std::string text;
    int left;
  };
  const linnet_text_callback hear = [](void* user, const char* piece, size_t size) {
    auto& heard = *static_cast<Heard*>(user);
    EXPECT_EQ(std::strlen(piece), size);
    heard.text += piece;
    return --heard.left == 0 ? 1 : 0;
  };
  Heard all{"", 1000}, some{"", 3};
  char* text = nullptr;
  ASSERT_EQ(linnet_generate(model.get(), "w5 w6", &options, hear, &all, &text), LINNET_OK) << linnet_last_error();
  EXPECT_EQ(all.text, text);
  linnet_string_free(text);
  ASSERT_EQ(linnet_generate(model.get(), "w5 w6", &options, hear, &some, &text), LINNET_OK);
  EXPECT_EQ(some.text, text);
  EXPECT_EQ(all.text.rfind(some.text, 0), 0u);
  EXPECT_LT(some.text.size(), all.text.size());
  linnet_string_free(text);
}

TEST(CInterface, ClassifiesTranslatesAndEncodes) {
  const Folder classes("bert_classifier", 90), pairs("marian", 47);
  const Model classifier(classes), translator(pairs);
  const size_t width = linnet_model_width(classifier.get());
  ASSERT_GT(width, 1u);
  EXPECT_EQ(linnet_model_get_kind(classifier.get()), LINNET_CLASSIFIER);
  EXPECT_NE(linnet_model_class_name(classifier.get(), width - 1), nullptr);
  EXPECT_EQ(linnet_model_class_name(classifier.get(), width), nullptr);
  std::vector<float> row(width);
  const char* text = "w7 w8";
  ASSERT_EQ(linnet_classify(classifier.get(), &text, 1, row.data()), LINNET_OK) << linnet_last_error();
  float sum = 0;
  for (const float value : row) sum += value;
  EXPECT_NEAR(sum, 1, 1e-5);
  char* translation = nullptr;
  ASSERT_EQ(linnet_translate(translator.get(), "w7 w8", &translation), LINNET_OK) << linnet_last_error();
  EXPECT_NE(std::string(translation), "");
  linnet_string_free(translation);
  size_t count = 0;
  EXPECT_EQ(linnet_encode(classifier.get(), text, nullptr, 0, &count), LINNET_BUFFER_TOO_SMALL);
  ASSERT_EQ(count, 4u);
  std::vector<int32_t> tokens(count);
  ASSERT_EQ(linnet_encode(classifier.get(), text, tokens.data(), tokens.size(), &count), LINNET_OK);
  EXPECT_EQ(tokens, (std::vector<int32_t>{2, 7, 8, 3}));
}

TEST(CInterface, WeightsMayBeKeptInFewerBits) {
  const Folder folder("bert_model", 90);
  const Model whole(folder), quantized(folder, "int8");
  const std::vector<float> exact = embed(whole.get(), {"w7 w8 w9"}), rounded = embed(quantized.get(), {"w7 w8 w9"});
  EXPECT_NE(exact, rounded);
  float product = 0;  // of vectors of length 1
  for (size_t i = 0; i < exact.size(); ++i) product += exact[i] * rounded[i];
  EXPECT_GT(product, 0.99F);
  linnet_model_options options;
  linnet_model_options_init(&options);
  options.quantize = "int3";
  linnet_model* none = nullptr;
  EXPECT_EQ(linnet_model_open(folder.path().c_str(), &options, &none), LINNET_USER_ERROR);
  EXPECT_NE(std::string(linnet_last_error()).find("int3"), std::string::npos);
  // A caller that knows nothing of the member has weights as they are.
  options.size = offsetof(linnet_model_options, quantize);
  ASSERT_EQ(linnet_model_open(folder.path().c_str(), &options, &none), LINNET_OK) << linnet_last_error();
  EXPECT_EQ(embed(none, {"w7 w8 w9"}), exact);
  linnet_model_close(none);
}

TEST(CInterface, MistakesAreCodesWithOneLine) {
  const Folder folder("gpt2", 90);
  const Model model(folder);
  const auto fails = [](linnet_status found, linnet_status wanted) {
    EXPECT_EQ(found, wanted) << linnet_last_error();
    EXPECT_STRNE(linnet_last_error(), "");
    EXPECT_EQ(std::strchr(linnet_last_error(), '\n'), nullptr);
  };
  linnet_model* none = model.get();
  fails(linnet_model_open("/nowhere", nullptr, &none), LINNET_USER_ERROR);
  EXPECT_EQ(none, nullptr);
  fails(linnet_model_open(nullptr, nullptr, &none), LINNET_BAD_ARGUMENT);
  fails(linnet_model_open(folder.path().c_str(), nullptr, nullptr), LINNET_BAD_ARGUMENT);
  linnet_model_options options;
  linnet_model_options_init(&options);
  options.slots = 0;
  fails(linnet_model_open(folder.path().c_str(), &options, &none), LINNET_BAD_ARGUMENT);
  options.size = 1;
  fails(linnet_model_open(folder.path().c_str(), &options, &none), LINNET_BAD_ARGUMENT);
  const char* text = "w5";
  float row[4];
  char* written = nullptr;
  fails(linnet_embed(model.get(), &text, 1, row), LINNET_BAD_ARGUMENT);
  fails(linnet_classify(nullptr, &text, 1, row), LINNET_BAD_ARGUMENT);
  fails(linnet_translate(model.get(), "w5", &written), LINNET_BAD_ARGUMENT);
  fails(linnet_generate(model.get(), nullptr, nullptr, nullptr, nullptr, &written), LINNET_BAD_ARGUMENT);
  fails(linnet_generate(model.get(), "\xFF", nullptr, nullptr, nullptr, &written), LINNET_USER_ERROR);
  std::string longer;
  for (int i = 0; i < 5000; ++i) longer += "w5 ";
  fails(linnet_generate(model.get(), longer.c_str(), nullptr, nullptr, nullptr, &written), LINNET_USER_ERROR);
  linnet_generate_options settings;
  linnet_generate_options_init(&settings);
  settings.beams = 7;
  fails(linnet_generate(model.get(), "w5", &settings, nullptr, nullptr, &written), LINNET_USER_ERROR);
  settings.beams = 0, settings.is_chat = 1;
  fails(linnet_generate(model.get(), "w5", &settings, nullptr, nullptr, &written), LINNET_USER_ERROR);
  EXPECT_EQ(written, nullptr);
  EXPECT_NE(generate(model.get(), "w5", 1), "") << "it goes on after mistakes";
  linnet_model_close(nullptr);
  linnet_string_free(nullptr);
}

TEST(CInterface, AChildOfForkIsToldToOpenTheModelItself) {
  const Folder encoder("bert_model", 90), writer("gpt2", 90);
  const Model embedder(encoder), language(writer);
  const std::string written = generate(language.get(), "w5 w6", 1);
  const auto in_child = [&] {
    char* text = nullptr;
    if (linnet_generate(language.get(), "w5 w6", nullptr, nullptr, nullptr, &text) != LINNET_USER_ERROR) return 1;
    if (!std::strstr(linnet_last_error(), "open it after fork()")) return 2;
    const char* one = "w7";
    std::vector<float> row(linnet_model_width(embedder.get()));
    if (linnet_embed(embedder.get(), &one, 1, row.data()) != LINNET_USER_ERROR) return 3;
    linnet_model_close(language.get()), linnet_model_close(embedder.get());
    return generate(Model(writer).get(), "w5 w6", 1) == written ? 0 : 4;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // instead of a test that hangs
    ::_exit(in_child());
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(generate(language.get(), "w5 w6", 1), written);
}
}  // namespace
