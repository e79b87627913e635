// Learning from a teacher through the command line, with tiny models and words as tokens.
#include <gtest/gtest.h>
#include <filesystem>
#include "integration/program.h"
#include "integration/word_model.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
using Json = ParsedJson;

class Distillation : public ::testing::Test {
 protected:
  Outcome train(const std::string& preset, const std::string& run_folder, const std::string& data, Arguments settings,
      const Arguments& more = {}) const {
    Arguments all{"train", preset, "--run", folder_ / run_folder, "--data", folder_ / data};
    settings.insert(settings.end(), {"threads=1", "schedule=constant", "final_learning_rate=0", "warmup_steps=0",
                                        "save_every=10", "patience=0", "precision=fp32"});
    add_settings(all, settings);
    all.insert(all.end(), more.begin(), more.end());
    return run(all, {.log = "warning"});
  }
  double loss(const std::string& run_folder) const {
    const Outcome outcome = run({"eval", folder_ / run_folder, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(outcome.out)["loss"];
  }
  double first_loss(const std::string& run_folder) const {
    return std::stod(of_split(read_metrics(folder_ / run_folder), "train").at(0).loss);
  }
  TemporaryFolder folder_;
};

Arguments with(Arguments settings, const Arguments& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

TEST_F(Distillation, ALanguageModelLearnsWhatItsTeacherKnows) {
  const std::string model = make_word_model(folder_, "llama");
  std::string text;
  for (int i = 0; i < 400; ++i) text += "w" + std::to_string(30 + (i * i + i / 3) % 7) + (i % 12 ? " " : "\n");
  folder_.write("text.txt", text);
  const Arguments settings{"model.from=" + model, "context=16", "batch_size=4", "batch_tokens=0", "sample_length=0",
      "eval_every=40", "learning_rate=1e-2", "max_steps=80", "max_epochs=0"};
  ASSERT_EQ(train("text", "teacher-run", "text.txt", settings).exit_code, 0);
  ASSERT_EQ(run({"export", folder_ / "teacher-run", "--out", folder_ / "teacher"}).exit_code, 0);
  const Arguments taught = with(settings, {"teacher=" + (folder_ / "teacher"), "teacher_alpha=1", "temperature=1.5"});
  const Outcome student = train("text", "student", "text.txt", taught);
  ASSERT_EQ(student.exit_code, 0) << student.error;
  ASSERT_EQ(train("text", "untaught", "text.txt", with(settings, {"max_steps=1"})).exit_code, 0);
  const double of_teacher = loss("teacher-run"), of_student = loss("student"), before = loss("untaught");
  EXPECT_GT(before - of_teacher, 1);
  EXPECT_NEAR(of_student, of_teacher, 0.1 * (before - of_teacher));
  // Evaluations are those of the data, and the run's weights are the student's alone.
  EXPECT_EQ(std::filesystem::file_size(folder_ / "student/model.safetensors"),
      std::filesystem::file_size(folder_ / "untaught/model.safetensors"));
  // A teacher that is the model itself teaches nothing, and one without a share changes nothing.
  ASSERT_EQ(train("text", "self", "text.txt", with(taught, {"teacher=" + model, "max_steps=1"})).exit_code, 0);
  EXPECT_NEAR(first_loss("self"), 0, 1e-6);
  ASSERT_EQ(train("text", "alone", "text.txt", with(taught, {"teacher_alpha=0", "max_steps=1"})).exit_code, 0);
  EXPECT_NEAR(first_loss("alone"), first_loss("untaught"), 1e-5);
  // Resumed, the teacher is there again.
  ASSERT_EQ(train("text", "parts", "text.txt", with(taught, {"max_steps=40"})).exit_code, 0);
  ASSERT_EQ(train("text", "parts", "text.txt", taught, {"--resume"}).exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "parts/model.safetensors") == contents(folder_ / "student/model.safetensors"));
}

TEST_F(Distillation, AClassifierLearnsWhatItsTeacherKnows) {
  const std::string model = make_word_model(folder_, "bert_classifier");
  std::string texts;
  for (int i = 0; i < 120; ++i)
    texts += std::string(i % 3 == 0   ? "w20 w21"
                         : i % 3 == 1 ? "w30 w31 w32"
                                      : "w40") +
             " w" + std::to_string(50 + i % 5) + "\t" +
             (i % 3 == 0      ? "a"
                 : i % 3 == 1 ? "b"
                              : "c") +
             "\n";
  folder_.write("texts.tsv", texts);
  const Arguments settings{"model.from=" + model, "context=16", "batch_size=8", "eval_every=60", "learning_rate=5e-3",
      "max_steps=60", "max_epochs=0"};
  ASSERT_EQ(train("classify", "teacher-run", "texts.tsv", settings).exit_code, 0);
  ASSERT_EQ(run({"export", folder_ / "teacher-run", "--out", folder_ / "teacher"}).exit_code, 0);
  const Arguments taught = with(settings, {"teacher=" + (folder_ / "teacher"), "teacher_alpha=1", "seed=7"});
  const Outcome student = train("classify", "student", "texts.tsv", taught);
  ASSERT_EQ(student.exit_code, 0) << student.error;
  EXPECT_LT(loss("student"), 0.3);
  const Outcome plan = run({"plan", "classify", "--data", folder_ / "texts.tsv", "--set", "model.from=" + model,
      "--set", "teacher=" + (folder_ / "teacher")});
  EXPECT_EQ(plan.exit_code, 0) << plan.error;
}

TEST_F(Distillation, ATeacherThatDoesNotFitIsOneLine) {
  const std::string llama = make_word_model(folder_, "llama"), bert = make_word_model(folder_, "bert_classifier"),
                    encoder = make_word_model(folder_, "bert_model");
  std::string texts, text;
  for (int i = 0; i < 40; ++i) texts += std::string(i % 2 ? "w20\tx\n" : "w30\ty\n"), text += "w20 w30 w40\n";
  folder_.write("texts.tsv", texts);
  folder_.write("text.txt", text);
  folder_.write("empty/readme", "");
  for (const auto& [preset, data, from, teacher, part] :
      {std::tuple{"text", "text.txt", llama, bert, std::string("is no language model")},
          {"text", "text.txt", llama, folder_ / "empty", std::string("not a model folder")},
          {"text", "text.txt", llama, folder_ / "nothing", std::string("not a model folder")},
          {"classify", "texts.tsv", encoder, llama, std::string("")},
          {"classify", "texts.tsv", encoder, bert, std::string("it has 3 classes, and the data 2")}}) {
    const Outcome outcome = train(
        preset, "r", data, {"model.from=" + from, "teacher=" + teacher, "context=16", "batch_size=4", "max_steps=1"});
    EXPECT_EQ(outcome.exit_code, 2) << preset << " " << teacher;
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  const Outcome other = train("tag", "r", "texts.tsv", {"model.from=" + bert, "teacher=" + bert});
  EXPECT_EQ(other.exit_code, 2);
}
}  // namespace
}  // namespace linnet::testing
