// The pages of docs/start: every command in them runs, on little data and with small models.
#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include "error_of.h"
#include "integration/made_images.h"
#include "integration/program.h"

namespace linnet::testing {
namespace {
const std::string kPages = LINNET_START_PAGES, kGolden = LINNET_GOLDEN;
constexpr size_t kScreen = 45;  // lines

// The lines of the page's ```sh blocks. Those that train get `smaller` added.
std::string commands_of(const std::string& page, const std::string& smaller) {
  std::string script;
  bool inside = false;
  for (const std::string& line : lines(page)) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
      continue;
    }
    if (!inside) continue;
    const bool trains =
        line.starts_with("linnet train ") || line.starts_with("linnet plan ") || line.starts_with("linnet sweep ");
    script += line + (trains ? " " + smaller : "") + "\n";
  }
  return script;
}

class StartPages : public ::testing::Test {
 protected:
  // What the page's commands print. The page must fit a screen, and every command must succeed.
  std::string run_page(const std::string& name, const std::string& smaller) {
    const std::string page = contents(kPages + "/" + name);
    EXPECT_FALSE(page.empty()) << "no page " << kPages << "/" << name;
    EXPECT_LE(lines(page).size(), kScreen);
    const std::string commands = commands_of(page, smaller);
    EXPECT_GE(lines(commands).size(), 3u) << name;
    const std::string bin = std::filesystem::path(program_path()).parent_path().string();
    // `head` reads all of its input: a program that still writes when head has gone would end by SIGPIPE.
    const std::string head = "head() { command head \"$@\"; cat >/dev/null; }\n";
    folder_.write(
        "page.sh", head + "set -e -o pipefail\ncd '" + folder_.path() + "'\nPATH='" + bin + "':$PATH\n" + commands);
    const std::string shell = "bash " + folder_ / "page.sh" + " >" + folder_ / "out" + " 2>" + folder_ / "error";
    EXPECT_EQ(std::system(shell.c_str()), 0) << contents(folder_ / "error") << "\nof\n" << commands;
    return contents(folder_ / "out");
  }

  const TemporaryFolder folder_;
};

std::string words(int count, int seed) {
  const char* const all[] = {"the", "dog", "runs", "a", "cat", "sleeps", "on", "it"};
  std::string text;
  auto random = static_cast<uint32_t>(seed);
  for (int i = 0; i < count; ++i) {
    random = random * 1664525 + 1013904223;
    text += (i ? " " : "") + std::string(all[random >> 29]);
  }
  return text;
}

TEST_F(StartPages, Translate) {
  std::string pairs;
  for (int i = 0; i < 80; ++i) pairs += words(3 + i % 4, i) + "\t" + words(3 + i % 4, i) + "!\n";
  folder_.write("pairs.tsv", pairs);
  const std::string out = run_page("translate.md",
      "--steps 4 --set d_model=16 --set num_heads=2 --set num_layers=1 --set d_ff=32 --set "
      "max_seq_len=32 --set batch_tokens=256 --set vocab_size=40 --set threads=1");
  EXPECT_PRED2(has_text, out, "8 validation pairs");
  EXPECT_PRED2(has_text, out, "chrF");
}

TEST_F(StartPages, Text) {
  folder_.write("text.txt", words(4000, 1));
  const std::string out = run_page("text.md",
      "--steps 4 --batch 4 --set d_model=16 --set num_heads=2 --set num_layers=1 --set "
      "d_ff=32 --set max_seq_len=32 --set vocab_size=280 --set threads=1");
  EXPECT_PRED2(has_text, out, "perplexity");
  EXPECT_PRED2(has_text, out, "\tOnce upon a time");
  EXPECT_TRUE(exists(folder_ / "verse/config.json"));
}

TEST_F(StartPages, ClassifyText) {
  std::string reviews;
  for (int i = 0; i < 60; ++i) reviews += words(4, i) + "\t" + (i % 2 ? "good" : "bad") + "\n";
  folder_.write("reviews.tsv", reviews);
  copy_folder(kGolden + "/bert_model", folder_ / "bert");
  const std::string out = run_page("classify_text.md", "--steps 4 --batch 4 --set context=16 --set threads=1");
  EXPECT_PRED2(has_text, out, "\tWhat a lovely film.");
  EXPECT_PRED2(has_text, out, "6 texts");
  EXPECT_EQ(lines(contents(folder_ / "labels.csv")).size(), 61u);
}

TEST_F(StartPages, SeveralLabels) {
  std::string topics = "text,labels\n", pairs = "sentence1,sentence2,score\n";
  for (int i = 0; i < 60; ++i) {
    topics += words(4, i) + "," + (i % 2 ? "sport|politics" : "sport") + "\n";
    pairs += words(3, i) + "," + words(3, i + 1) + "," + std::to_string(i % 5) + ".5\n";
  }
  folder_.write("topics.csv", topics);
  folder_.write("pairs.csv", pairs);
  copy_folder(kGolden + "/bert_model", folder_ / "bert");
  const std::string out = run_page("several_labels.md", "--steps 4 --batch 4 --set context=16 --set threads=1");
  EXPECT_PRED2(has_text, out, "\"probabilities\":{\"politics\":");
  EXPECT_PRED2(has_text, out, "spearman");
  EXPECT_PRED2(has_text, out, "\ta plane takes off\tan airplane is leaving");
}

// A llama whose tokens are words, as a chat model.
void write_chat_model(const TemporaryFolder& folder, const std::string& name) {
  copy_folder(kGolden + "/llama", folder / name);
  std::string vocabulary;
  for (int id = 0; id < 97; ++id) vocabulary += (id == 3 ? "[UNK]" : "w" + std::to_string(id)) + "\n";
  folder.write(name + "/vocab.txt", vocabulary);
  folder.write(name + "/chat_template.jinja",
      "{% for m in messages %}w7 {{ m.content }} w9 {% endfor %}{% if add_generation_prompt %}w7 {% endif %}");
}

TEST_F(StartPages, Preferences) {
  std::string pairs;
  for (int i = 0; i < 60; ++i)
    pairs += R"({"prompt": "w20 ", "chosen": "w3)" + std::to_string(i % 10) +
             R"(", "rejected": "w40"})"
             "\n";
  folder_.write("pairs.jsonl", pairs);
  write_chat_model(folder_, "chat-model");
  const std::string out =
      run_page("preferences.md", "--steps 4 --batch 4 --set context=16 --set lora.rank=4 --set threads=1");
  EXPECT_PRED2(has_text, out, "accuracy");
}

TEST_F(StartPages, Distill) {
  std::string reviews;
  for (int i = 0; i < 60; ++i) reviews += words(4, i) + "\tLABEL_" + std::to_string(i % 3) + "\n";
  folder_.write("reviews.tsv", reviews);
  folder_.write("text.txt", words(3000, 1));
  for (const std::string name : {"bert", "teacher"}) {
    copy_folder(kGolden + "/bert_classifier", folder_ / name);
    folder_.write(name + "/vocab.txt", contents(kGolden + "/bert_model/vocab.txt"));
  }
  for (const char* name : {"small", "large"}) write_chat_model(folder_, name);
  const std::string out = run_page("distill.md", "--steps 4 --batch 4 --set context=16 --set threads=1");
  EXPECT_PRED2(has_text, out, "60 texts");
  EXPECT_TRUE(exists(folder_ / "small-and-taught/config.json"));
}

TEST_F(StartPages, Sweep) {
  std::string reviews;
  for (int i = 0; i < 60; ++i) reviews += words(4, i) + "\t" + (i % 2 ? "good" : "bad") + "\n";
  folder_.write("reviews.tsv", reviews);
  const std::string out = run_page("sweep.md",
      "--steps 4 --batch 4 --set context=16 --set threads=1 --set d_model=16 --set d_ff=32 "
      "--set num_heads=2 --set num_layers=1 --set vocab_size=40");
  EXPECT_PRED2(has_text, out, "run  learning_rate");
  EXPECT_TRUE(exists(folder_ / "sweeps/classify/006/model.safetensors"));
  EXPECT_TRUE(exists(folder_ / "sweeps/classify/report.html"));
}

TEST_F(StartPages, Chat) {
  std::string chats;
  for (int i = 0; i < 60; ++i)
    chats += R"({"prompt": ")" + words(2, i) + R"(", "completion": ")" + words(2, i + 1) + "\"}\n";
  folder_.write("chats.jsonl", chats);
  write_chat_model(folder_, "chat-model");
  const std::string out = run_page("chat.md", "--steps 4 --batch 4 --set context=16 --set lora.rank=4 --set threads=1");
  EXPECT_PRED2(has_text, out, "perplexity");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "my-adapter/adapter_config.json"));
}

TEST_F(StartPages, TagWords) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the O\n" + words(1, i) + " B-PER\n" + words(1, i + 1) + " I-PER\n\n";
  folder_.write("names.conll", text);
  copy_folder(kGolden + "/bert_model", folder_ / "bert");
  const std::string out = run_page("tag_words.md", "--steps 4 --batch 4 --set context=16 --set threads=1");
  EXPECT_PRED2(has_text, out, "\"entities\":[");
  EXPECT_PRED2(has_text, out, "F1 ");
}

TEST_F(StartPages, AnswerQuestions) {
  std::string records;
  for (int i = 0; i < 30; ++i)
    records +=
        R"({"question": "who", "context": ")" + words(4, i) + " dog" + R"(", "answers": {"text": ["dog"]}})" + "\n";
  folder_.write("train.json", records), folder_.write("dev.json", records);
  copy_folder(kGolden + "/bert_model", folder_ / "bert");
  const std::string out =
      run_page("answer_questions.md", "--steps 4 --batch 4 --set context=24 --set answers.stride=1 --set threads=1");
  EXPECT_PRED2(has_text, out, "exact_match ");
  EXPECT_PRED2(has_text, out, "\"answer\":");
  EXPECT_EQ(lines(contents(folder_ / "answers.tsv")).size(), 30u);
}

TEST_F(StartPages, TrainEmbeddings) {
  std::string pairs;
  for (int i = 0; i < 40; ++i) pairs += words(3, i) + "\t" + words(4, i + 1) + "\n";
  folder_.write("pairs.tsv", pairs), folder_.write("test.tsv", pairs);
  folder_.write("sentences.txt", words(5, 1) + "\n" + words(6, 2) + "\n");
  copy_folder(kGolden + "/bert_model", folder_ / "minilm");
  const std::string out = run_page("train_embeddings.md", "--steps 4 --batch 4 --set context=16 --set threads=1");
  EXPECT_PRED2(has_text, out, "mrr_10 ");
  EXPECT_PRED2(has_text, out, "\tmy password\tthe security settings");
  EXPECT_EQ(lines(contents(folder_ / "vectors.txt")).size(), 2u);
  EXPECT_TRUE(exists(folder_ / "FOLDER/modules.json"));
}

TEST_F(StartPages, Embed) {
  folder_.write("sentences.txt", words(5, 1) + "\n" + words(6, 2) + "\n" + words(7, 3) + "\n");
  folder_.write("text.txt", words(3000, 1));
  copy_folder(kGolden + "/bert_model", folder_ / "bert");
  const std::string out = run_page("embed.md", "--batch 4 --set max_steps=4 --set context=16 --set threads=1");
  EXPECT_PRED2(has_text, out, "\"embedding\":[");
  EXPECT_EQ(lines(contents(folder_ / "vectors.txt")).size(), 3u);
  EXPECT_NE(contents(folder_ / "mine.txt"), contents(folder_ / "vectors.txt"));
}

TEST_F(StartPages, ClassifyImages) {
  write_pictures(folder_, 60);
  const std::string out = run_page("classify_images.md", "--steps 4 --batch 8 --set image_size=8 --set threads=1");
  EXPECT_PRED2(has_text, out, "6 images");
  EXPECT_PRED2(has_text, out, "\tpictures/lower/");
}

TEST_F(StartPages, LabelImages) {
  write_pictures(folder_, 60);
  std::string classes = "file,label\n", tags = classes, ages = classes;
  for (int i = 0; i < 60; ++i) {
    const std::string name = i % 2 == 0 ? "upper" : "lower",
                      file = "pictures/" + name + "/" + std::to_string(i) + ".bmp,";
    classes += file + name + "\n", tags += file + name + (i % 3 ? "|odd" : "") + "\n";
    ages += file + std::to_string(i % 7) + "\n";
  }
  folder_.write("labels.csv", classes), folder_.write("tags.csv", tags), folder_.write("ages.csv", ages);
  const std::string out = run_page("label_images.md", "--steps 4 --batch 8 --set image_size=8 --set threads=1");
  EXPECT_PRED2(has_text, out, "\"probabilities\":{\"lower\":");
}
}  // namespace
}  // namespace linnet::testing
