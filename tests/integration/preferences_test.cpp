// Learning from pairs of answers through the command line, with a tiny model and words as tokens.
#include <gtest/gtest.h>
#include <cmath>
#include "integration/program.h"
#include "integration/word_model.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
using Json = ParsedJson;

Json turn(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

class Preferences : public ::testing::Test {
 protected:
  Preferences() : model_(make_word_model(folder_, "llama")) {
    folder_.write("llama/chat_template.jinja",
        "{% for m in messages %}{{ 'w7' if m.role == 'user' else 'w8' }} {{ m.content }} w9 {% endfor %}{% if "
        "add_generation_prompt %}w8 {% endif %}");
    std::string texts, messages, implicit;
    for (int i = 0; i < 40; ++i) {
      const std::string question = i % 2 ? "w30" : "w31", chosen = i % 2 ? "w41 w42" : "w43",
                        rejected = i % 2 ? "w43" : "w41 w44 w45";
      texts += Json{{"prompt", question + " "}, {"chosen", chosen}, {"rejected", rejected}}.dump() + "\n";
      const Json user = turn("user", question), good = turn("assistant", chosen), bad = turn("assistant", rejected);
      Json prompt = Json::array(), chosen_turns = Json::array(), rejected_turns = Json::array(),
           whole_chosen = Json::array(), whole_rejected = Json::array();
      prompt.push_back(user), chosen_turns.push_back(good), rejected_turns.push_back(bad);
      whole_chosen.push_back(user), whole_chosen.push_back(good);
      whole_rejected.push_back(user), whole_rejected.push_back(bad);
      messages += Json{{"prompt", prompt}, {"chosen", chosen_turns}, {"rejected", rejected_turns}}.dump() + "\n";
      implicit += Json{{"chosen", whole_chosen}, {"rejected", whole_rejected}}.dump() + "\n";
    }
    folder_.write("texts.jsonl", texts);
    folder_.write("messages.jsonl", messages);
    folder_.write("implicit.jsonl", implicit);
  }
  Arguments arguments(const std::string& run_folder, const std::string& data, const Arguments& settings) const {
    Arguments all{"train", "preferences", "--run", folder_ / run_folder, "--data", folder_ / data};
    add_settings(all, {"model.from=" + model_, "context=24", "max_steps=40", "max_epochs=0", "warmup_steps=2",
                          "learning_rate=1e-2", "schedule=constant", "eval_every=20", "save_every=20", "batch_size=6",
                          "valid_share=0.2", "lora.rank=4", "threads=1"});
    add_settings(all, settings);
    return all;
  }
  Outcome train(const std::string& run_folder, const std::string& data, const Arguments& settings = {},
      const Arguments& more = {}) const {
    Arguments all = arguments(run_folder, data, settings);
    all.insert(all.end(), more.begin(), more.end());
    return run(all, {.log = "warning"});
  }
  Json evaluation(const std::string& run_folder, const Arguments& more = {}) const {
    Arguments all{"eval", folder_ / run_folder, "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(outcome.out);
  }
  double first_loss(const std::string& run_folder) const {
    return std::stod(of_split(read_metrics(folder_ / run_folder), "train").at(0).loss);
  }
  TemporaryFolder folder_;
  const std::string model_;
};

const Arguments kAllWeights{"lora.rank=0", "lora.alpha=16", "lora.base_storage=fp32"};

// Twenty steps on conversations in ChatML, as TRL takes them: the tokens that count are the same, to the last one.
TEST_F(Preferences, LossesAndRewardsOfConversationsAreThoseOfTrl) {
  const std::string golden = std::string(LINNET_GOLDEN) + "/../preferences", pairs = golden + "/pairs.jsonl";
  Arguments all{"train", "preferences", "--run", folder_ / "run", "--data", pairs};
  add_settings(all, {"model.from=" + golden, "valid_text=" + pairs, "batch_size=12", "context=128", "lora.rank=0",
                        "lora.alpha=16", "lora.base_storage=fp32", "beta=0.3", "label_smoothing=0",
                        "learning_rate=1e-3", "schedule=constant", "final_learning_rate=0", "warmup_steps=0",
                        "max_steps=20", "max_epochs=0", "eval_every=1", "save_every=1000", "patience=0", "threads=1"});
  const Outcome trained = run(all);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Json trl = Json::parse(contents(golden + "/trl.json"));
  size_t step = 0, evaluation = 0;
  for (const std::string& line : lines(contents(folder_ / "run/metrics.jsonl"))) {
    const Json found = Json::parse(line);
    if (found["split"] == "train") {
      EXPECT_NEAR(found["loss"].get<double>(), trl["losses"][step].get<double>(), 1e-4) << "step " << step;
      ++step;
    } else if (evaluation < trl["rewards"].size()) {
      for (const auto& [name, i] : {std::pair{"chosen_reward", 0u}, {"rejected_reward", 1u}, {"accuracy", 2u}})
        EXPECT_NEAR(found[name].get<double>(), trl["rewards"][evaluation][i].get<double>(), 1e-4) << name;
      ++evaluation;
    }
  }
  EXPECT_EQ(step, 20u);
  EXPECT_EQ(evaluation, 19u);
}

// As the start page advises for all weights; the preset's last rate is above it.
TEST_F(Preferences, ARateBelowThePresetsLastOneIsTaken) {
  const Outcome outcome = train("low", "texts.jsonl", {"max_steps=2", "schedule=cosine"}, {"--lr", "5e-7"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const Outcome plan = run({"plan", folder_ / "low", "--set", "final_learning_rate=1e-7"});
  EXPECT_EQ(plan.exit_code, 0) << plan.error;  // at most the rate that the run has
  const Outcome above =
      train("high", "texts.jsonl", {"schedule=cosine", "final_learning_rate=1"}, {"--lr", "5e-7"});  // as asked for
  EXPECT_NE(above.error.find("final_learning_rate is above learning_rate"), std::string::npos) << above.error;
}

// The model is compared with what it begins as: the first loss is that of a difference of 0, and it stays one of
// weights that training does not change.
TEST_F(Preferences, EveryLossLearnsThemAndBeginsAtItsReference) {
  ASSERT_EQ(train("lora", "texts.jsonl").exit_code, 0);
  ASSERT_EQ(train("all", "texts.jsonl", kAllWeights).exit_code, 0);
  Arguments ipo = kAllWeights;
  ipo.emplace_back("preferences.method=ipo");
  ASSERT_EQ(train("ipo", "texts.jsonl", ipo).exit_code, 0);
  EXPECT_NEAR(first_loss("lora"), std::log(2.0), 1e-6);
  EXPECT_NEAR(first_loss("all"), std::log(2.0), 1e-6);
  EXPECT_NEAR(first_loss("ipo"), 25, 1e-4);  // (1 / (2 beta))^2
  ASSERT_EQ(train("orpo", "texts.jsonl", {"preferences.method=orpo"}).exit_code, 0);
  EXPECT_GT(first_loss("orpo"), 2);
  for (const char* name : {"lora", "all", "ipo", "orpo"}) {
    const Json found = evaluation(name);
    EXPECT_EQ(found["accuracy"], 1.0) << name;
    EXPECT_GT(static_cast<double>(found["margin"]), 0.1) << name;
    EXPECT_EQ(found["pairs"], 8) << name;
  }
  EXPECT_LT(static_cast<double>(evaluation("all")["loss"]), 0.4);
}

TEST_F(Preferences, AnEvaluationFindsWhatTheRunHasFound) {
  ASSERT_EQ(train("run", "messages.jsonl", {"max_steps=20"}).exit_code, 0);
  const Metrics last = of_split(read_metrics(folder_ / "run"), "valid").back();
  const Json again = evaluation("run"), implicit = evaluation("run", {"--data", folder_ / "implicit.jsonl"}),
             messages = evaluation("run", {"--data", folder_ / "messages.jsonl"});
  EXPECT_NEAR(again["loss"], std::stod(last.loss), 1e-6);
  EXPECT_EQ(implicit["loss"], messages["loss"]);  // the prompt is what both answers begin with
  EXPECT_EQ(messages["pairs"], 40);
}

TEST_F(Preferences, ARunGoesOnToTheSameBits) {
  for (const Arguments& settings : {Arguments{}, kAllWeights}) {
    const std::string name = settings.empty() ? "lora" : "all";
    Arguments half = settings, whole = settings;
    half.emplace_back("max_steps=20"), whole.emplace_back("max_steps=40");
    ASSERT_EQ(train(name + "-whole", "texts.jsonl", whole).exit_code, 0);
    ASSERT_EQ(train(name + "-parts", "texts.jsonl", half).exit_code, 0);
    ASSERT_EQ(train(name + "-parts", "texts.jsonl", whole, {"--resume"}).exit_code, 0);
    EXPECT_TRUE(contents(folder_ / (name + "-parts/model.safetensors")) ==
                contents(folder_ / (name + "-whole/model.safetensors")))
        << name;
  }
}

// Of equal pairs the loss follows from the rewards.
TEST_F(Preferences, TheLossIsTheFormulaOfTheRewards) {
  const std::string line = R"({"prompt": "w30 ", "chosen": "w41 w42 w43", "rejected": "w44"})"
                           "\n";
  std::string all;
  for (int i = 0; i < 20; ++i) all += line;
  folder_.write("equal.jsonl", all);
  constexpr double kBeta = 0.2, kTokens[] = {3, 1};
  for (const char* kind : {"dpo", "ipo", "orpo"}) {
    ASSERT_EQ(
        train(kind, "equal.jsonl", {std::string("preferences.method=") + kind, "beta=0.2", "max_steps=6"}).exit_code,
        0);
    const Json found = evaluation(kind);
    const double chosen = found["chosen_reward"], rejected = found["rejected_reward"];
    EXPECT_NEAR(found["margin"], chosen - rejected, 1e-6);
    const auto soft = [](double x) { return std::log1p(std::exp(-x)); };
    const auto odds = [](double x) { return x - std::log1p(-std::exp(x)); };
    const double expected = kind == std::string("dpo") ? soft(chosen - rejected)
                            : kind == std::string("ipo")
                                ? std::pow((chosen / kTokens[0] - rejected / kTokens[1]) / kBeta - 1 / (2 * kBeta), 2)
                                : kBeta * soft(odds(chosen / kBeta) - odds(rejected / kBeta)) - chosen / kBeta;
    EXPECT_NEAR(found["loss"], expected, 1e-5) << kind;
    EXPECT_NE(chosen, 0) << kind;
  }
}

// Labels that are wrong half of the time teach nothing.
TEST_F(Preferences, LabelSmoothingIsTheShareOfWrongPairs) {
  ASSERT_EQ(train("half", "texts.jsonl", {"label_smoothing=0.5", "max_steps=20"}).exit_code, 0);
  EXPECT_NEAR(evaluation("half")["margin"], 0, 0.02);
}

TEST_F(Preferences, TheModelIsWrittenPlannedAndChecked) {
  ASSERT_EQ(train("run", "texts.jsonl").exit_code, 0);
  ASSERT_EQ(run({"export", folder_ / "run", "--out", folder_ / "out"}).exit_code, 0);
  const Outcome written =
      run({"generate", folder_ / "out", "--prompt", "w30", "--temperature", "0", "--max-tokens", "2"});
  EXPECT_EQ(written.exit_code, 0) << written.error;
  for (const bool has_data : {true, false}) {
    Arguments plan = arguments("none", "texts.jsonl", {});
    plan.erase(plan.begin() + 2, plan.begin() + (has_data ? 4 : 6));
    plan[0] = "plan";
    const Outcome planned = run(plan);
    EXPECT_EQ(planned.exit_code, 0) << planned.error;
    EXPECT_NE(planned.out.find("6 pairs of answers of up to 24 tokens"), std::string::npos) << planned.out;
  }
  Arguments small = kAllWeights;  // it computes in float64, node by node
  small.insert(small.end(), {"batch_size=2", "context=12"});
  Arguments check = arguments("none", "texts.jsonl", small);
  check.erase(check.begin() + 2, check.begin() + 4);
  check[0] = "check";
  const Outcome checked = run(check);
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.error;
}

TEST_F(Preferences, ATokenWithoutARowInTheModelIsNamed) {
  folder_.write("llama/vocab.txt", contents(model_ + "/vocab.txt") + "added\n");
  folder_.write("added.jsonl", R"({"prompt": "w1 ", "chosen": "added", "rejected": "w3"})");
  folder_.write(
      "chats.jsonl", R"({"messages": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "added"}]})");
  Arguments chat = arguments("r", "chats.jsonl", {});
  chat[1] = "chat";
  for (const Outcome& outcome : {train("r", "added.jsonl"), run(chat, {.log = "warning"})}) {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.error.find(".jsonl:1: the tokenizer writes token "), std::string::npos) << outcome.error;
  }
}

TEST_F(Preferences, ASystemMessageMayStandBesideThem) {
  ASSERT_EQ(train("run", "messages.jsonl", {"max_steps=3"}).exit_code, 0);
  const std::string answers = R"("chosen": [{"role": "assistant", "content": "w41"}],
                                 "rejected": [{"role": "assistant", "content": "w43"}]})",
                    question = R"({"role": "user", "content": "w30"}], )";
  const auto loss_of = [&](std::string record) {
    std::erase(record, '\n');
    folder_.write("record.jsonl", record);
    return evaluation("run", {"--data", folder_ / "record.jsonl"})["loss"].get<double>();
  };
  const double first = loss_of(R"({"prompt": [{"role": "system", "content": "w40"}, )" + question + answers);
  EXPECT_EQ(loss_of(R"({"system": "w40", "prompt": [)" + question + answers), first);
  EXPECT_NE(loss_of(R"({"prompt": [)" + question + answers), first);
}

TEST_F(Preferences, ARunThatBeginsWithAnotherIsToldWhatItIsComparedWith) {
  ASSERT_EQ(train("first", "texts.jsonl", {"max_steps=2"}).exit_code, 0);
  const Outcome next = train("next", "texts.jsonl", {"max_steps=2"}, {"--init", folder_ / "first"});
  EXPECT_EQ(next.exit_code, 0) << next.error;
  EXPECT_NE(next.error.find("the model is compared with '" + model_ + "', not with the run"), std::string::npos)
      << next.error;
  const Outcome orpo =
      train("orpo", "texts.jsonl", {"max_steps=2", "preferences.method=orpo"}, {"--init", folder_ / "first"});
  EXPECT_EQ(orpo.error.find("is compared with"), std::string::npos) << orpo.error;
}

TEST_F(Preferences, WhatCannotBeLearnedIsOneLine) {
  folder_.write("one.jsonl", R"({"prompt": "w1", "chosen": "w2"})"
                             "\r\n");
  folder_.write("mixed.jsonl", R"({"prompt": ["w1"], "chosen": "w2", "rejected": "w3"})");
  folder_.write("empty.jsonl", "");
  folder_.write("system.jsonl", R"({"system": "w4", "prompt": "w1", "chosen": "w2", "rejected": "w3"})");
  folder_.write("question.jsonl", R"({"question": "w1", "chosen": "w2", "rejected": "w3"})");
  std::string words;
  for (int i = 0; i < 200; ++i) words += "w1 ";
  folder_.write("long.jsonl", R"({"prompt": ")" + words + R"(", "chosen": "w2", "rejected": "w3"})");
  folder_.write("blank.jsonl", R"({"prompt": "w1", "chosen": "", "rejected": ""})");
  folder_.write("user.jsonl",
      R"({"chosen": [{"role": "user", "content": "w1"}], "rejected": [{"role": "user", "content": "w1"}]})");
  // Of turns with a weight of 0 nothing is learned, nor of the one before them.
  folder_.write("weights.jsonl",
      R"({"prompt": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w9"}, {"role": "user", "content": "w1"}], "chosen": [{"role": "assistant", "content": "w2", "weight": 0}], "rejected": [{"role": "assistant", "content": "w3", "weight": 0}]})");
  for (const auto& [data, part] : {std::pair{"one.jsonl", "one.jsonl:1: there is no \"rejected\""},
           {"mixed.jsonl", "are all texts, or lists of messages"}, {"empty.jsonl", "has no pair of answers"},
           {"blank.jsonl", "blank.jsonl:1: both answers are empty"}, {"user.jsonl", "has no pair of answers"},
           {"weights.jsonl", "has no pair of answers"}, {"none.jsonl", "none.jsonl"},
           {"system.jsonl", "system.jsonl:1: \"system\" goes with lists of messages"},
           {"question.jsonl", "question.jsonl:1: there is no \"prompt\""},
           {"long.jsonl", "has no pair of answers within 24 tokens (--set context=N takes longer ones)"}}) {
    const Outcome outcome = train("r", data);
    EXPECT_EQ(outcome.exit_code, 2) << data;
    EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  const Outcome most = train("r", "long.jsonl", {"context=100000"});
  EXPECT_NE(most.error.find("tokens (the model takes no more)"), std::string::npos) << most.error;
  const Outcome none = train("r", "texts.jsonl", {"model.from="});
  EXPECT_NE(none.error.find("it needs model.from"), std::string::npos) << none.error;
}
}  // namespace
}  // namespace linnet::testing
