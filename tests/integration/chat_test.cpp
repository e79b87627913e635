// Fine-tuning on conversations through the command line, with a tiny model and a chat template of its words.
#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include "integration/program.h"
#include "integration/word_model.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
using Json = ParsedJson;

Json message(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

class Chat : public ::testing::Test {
 protected:
  Chat() : model_(make_word_model(folder_, "llama")) {
    folder_.write("llama/chat_template.jinja",
        "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no such role: ' + "
        "m.role) }}{% endif %}{{ 'w7' if m.role == 'user' else 'w8' }} {{ m.content }} w9 {% endfor %}{% if "
        "add_generation_prompt %}w8 {% endif %}");
    std::string messages, pairs, shared;
    for (int i = 0; i < 90; ++i) {
      const std::string question = i % 2 ? "w30" : "w31", answer = i % 2 ? "w41 w42" : "w43";
      const std::string other = i % 3 ? "w32" : "w33", second = i % 3 ? "w44" : "w45 w46";
      messages += Json{{"messages", {message("user", question), message("assistant", answer), message("user", other),
                                        message("assistant", second)}}}
                      .dump() +
                  "\n";
      pairs += Json{{"prompt", question}, {"completion", answer}}.dump() + "\n";
      shared +=
          Json{{"conversations", {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", answer}}}}}
              .dump() +
          "\n";
    }
    folder_.write("messages.jsonl", messages);
    folder_.write("pairs.jsonl", pairs);
    folder_.write("shared.jsonl", shared);
  }
  Outcome train(const std::string& run_folder, const std::string& data, const Arguments& settings = {},
      const Arguments& more = {}) const {
    Arguments arguments{"train", "chat", "--run", folder_ / run_folder, "--data", folder_ / data};
    add_settings(arguments,
        {"model.from=" + model_, "context=20", "max_steps=60", "max_epochs=0", "warmup_steps=2", "learning_rate=2e-2",
            "schedule=constant", "eval_every=20", "save_every=20", "lora.rank=8", "lora.base_storage=fp32"});
    add_settings(arguments, settings);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.log = "warning"});
  }
  double loss(const std::string& run_folder, const std::string& data) const {
    const Outcome outcome = run({"eval", folder_ / run_folder, "--data", folder_ / data, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(outcome.out)["loss"];
  }
  // Of run "a" on these lines: how many tokens are learned. `told`: a warning has this.
  int tokens(const std::string& text, const std::string& told = "", const std::string& file = "record.jsonl",
      const Arguments& more = {}) const {
    folder_.write(file, text + "\n");
    Arguments arguments{"eval", folder_ / "a", "--data", folder_ / file, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments, {.log = "warning"});
    EXPECT_NE(outcome.error.find(told), std::string::npos) << outcome.error;
    return outcome.exit_code == 0 ? Json::parse(outcome.out)["tokens"].get<int>() : -1;
  }
  TemporaryFolder folder_;
  const std::string model_;
};

TEST_F(Chat, TheAnswersAreLearnedAndWrittenAgain) {
  const Outcome trained = train("a", "messages.jsonl", {"lora.rank=0", "lora.alpha=16", "max_steps=150"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_LT(loss("a", "messages.jsonl"), 0.1);
  ASSERT_EQ(run({"export", folder_ / "a", "--out", folder_ / "out"}).exit_code, 0);
  for (const auto& [question, answer] : {std::pair{"w30", "w41 w42"}, {"w31", "w43"}}) {
    const Outcome written =
        run({"generate", folder_ / "out", "--chat", "--prompt", question, "--temperature", "0", "--max-tokens", "3"});
    EXPECT_EQ(written.exit_code, 0) << written.error;
    EXPECT_EQ(written.out.substr(0, std::string(answer).size()), answer) << written.out;
  }
  const auto asked = [&](Arguments arguments, const std::string& input) {
    arguments.insert(arguments.end(), {"--temperature", "0", "--max-tokens", "3"});
    return run(arguments, {.input = input});
  };
  // Each line of standard input is a question.
  const std::string one = asked({"generate", folder_ / "out", "--chat"}, "w30\n").out,
                    other = asked({"generate", folder_ / "out", "--chat"}, "w31").out;
  EXPECT_EQ(asked({"generate", folder_ / "out", "--chat"}, "w30\n\nw31\n").out, one + "\n" + other);
  // In a conversation the model sees the turns before.
  const Arguments chat{"chat", folder_ / "out"};
  EXPECT_EQ(asked(chat, "w30\n/reset\nw31\n/quit\nw30\n").out, one + other);
  const std::string request =
      Json{{"messages",
               {message("user", "w30"), message("assistant", one.substr(0, one.size() - 1)), message("user", "w33")}}}
          .dump();
  const Outcome second = asked({"generate", folder_ / "out", "--jsonl", "-"}, request);
  EXPECT_EQ(second.exit_code, 0) << second.error;
  const Outcome conversation = asked(chat, "w30\nw33");
  EXPECT_EQ(conversation.exit_code, 0) << conversation.error;
  EXPECT_EQ(conversation.out, one + Json::parse(second.out)["text"].get<std::string>() + "\n");
  const Outcome refused = asked(chat, "/system w41\nw30\n");  // the template has no such role
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.error.find("no such role: system; /reset begins a new conversation"), std::string::npos)
      << refused.error;
  EXPECT_NE(asked({"chat", folder_ / "llama/none"}, "").error.find("there is no"), std::string::npos);
}

// The engine keeps a request whose computing fails, so no answer may follow; a question that cannot be asked is told.
TEST_F(Chat, AConversationOfAModelWithBrokenWeightsEnds) {
  std::string bytes = contents(model_ + "/model.safetensors");
  for (size_t i = 1; i <= 16; ++i) {  // the last tensor, the final norm's
    const float value = i % 2 ? 3e38F : -3e38F;
    std::memcpy(bytes.data() + bytes.size() - 4 * i, &value, 4);
  }
  folder_.write("llama/model.safetensors", bytes);
  const Terminal terminal("/system w41\nw30\n/system\nw30\nw31\n/quit\n");
  const Outcome outcome = run({"chat", model_}, {.input_path = terminal.path(), .log = "warning"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.error.find("no such role: system; /reset begins a new conversation\n"), std::string::npos);
  EXPECT_NE(outcome.error.find("its weights are broken\n"), std::string::npos) << outcome.error;
}

TEST_F(Chat, AQuestionWithoutRoomIsToldAndForgotten) {
  std::string longest = "w30";
  for (int i = 0; i < 19; ++i) longest += " w31";
  const Terminal terminal(longest + "\nw30\n/quit\n");
  const Outcome outcome =
      run({"chat", model_, "--context", "16", "--max-tokens", "2"}, {.input_path = terminal.path()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("leaves no room"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("; /reset begins a new conversation\n"), std::string::npos);
  EXPECT_FALSE(outcome.out.empty());
}

// Each token of an answer is scored once, and sees its own conversation alone, however rows are packed.
// Adapters have no gradient on one side at first, and the base's weights are packed.
TEST_F(Chat, AModelWithAdaptersPassesTheChecks) {
  const Outcome checked = run({"check", "chat", "--data", folder_ / "messages.jsonl", "--set", "model.from=" + model_,
      "--set", "context=20", "--set", "lora.rank=8", "--lr", "2e-2"});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.error;
  EXPECT_NE(checked.out.find("a guess among 97 classes"), std::string::npos) << checked.out;
}

TEST_F(Chat, TheLossDoesNotDependOnPackingOrOnTheFormOfTheFile) {
  ASSERT_EQ(train("a", "pairs.jsonl", {"max_steps=3"}).exit_code, 0);
  ASSERT_EQ(train("b", "pairs.jsonl", {"max_steps=3", "context=7"}).exit_code, 0);  // a conversation in each row
  const double packed = loss("a", "pairs.jsonl");
  std::filesystem::copy_file(folder_ / "a/model.safetensors", folder_ / "b/model.safetensors",
      std::filesystem::copy_options::overwrite_existing);
  EXPECT_NEAR(loss("b", "pairs.jsonl"), packed, 1e-6);
  EXPECT_EQ(loss("a", "shared.jsonl"), packed);
}

// As OpenAI's clients and datasets write conversations.
TEST_F(Chat, MessagesMayHavePartsCallsToolsAndWeights) {
  folder_.write("llama/chat_template.jinja",
      "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}"
      "{{ {'system': 'w6', 'user': 'w7', 'assistant': 'w8'}[m.role] }} {{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.arguments.word }}{% endfor %} w9 {% endfor %}{% if add_generation_prompt %}w8 {% endif %}");
  ASSERT_EQ(train("a", "pairs.jsonl", {"max_steps=3"}).exit_code, 0);
  const auto loss_of = [&](const std::string& record) {
    folder_.write("record.jsonl", record + "\n");
    return loss("a", "record.jsonl");
  };
  const std::string first =
                        R"({"messages": [{"role": "system", "content": "w40"}, {"role": "user", "content": "w30"}, )",
                    parts = R"({"messages": [{"role": "developer", "content": "w40"},
                               {"role": "user", "content": [{"type": "text", "text": "w30"}], "weight": null}, )",
                    answer = R"({"role": "assistant", "content": "w41"})",
                    call = R"({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "w50",
                              "arguments": "{\"word\": \"w41\"}"}}]})",
                    tools = R"(, "tools": [{"type": "function", "function": {"name": "w50"}}]})";
  const double plain = loss_of(first + answer + "]}");
  for (const std::string& line : {parts + answer + R"(], "tools": null})", first + call + R"(], "tools": []})"}) {
    std::string one_line = line;
    std::erase(one_line, '\n');
    EXPECT_EQ(loss_of(one_line), plain) << line;
  }
  EXPECT_NE(loss_of(first + answer + "]" + tools), plain);  // the template writes them
  const std::string text = R"(], "tools": "[{\"type\": \"function\", \"function\": {\"name\": \"w50\"}}]"})";
  EXPECT_EQ(loss_of(first + answer + text), loss_of(first + answer + "]" + tools));

  // Other forms of the same conversation. A system message that it begins with is kept.
  const std::string shared = R"({"from": "human", "value": "w30"}, {"from": "gpt", "content": "w41"}]})";
  for (const std::string& line : {R"({"system": "w40", "conversations": [)" + shared,
           R"({"conversations": [{"role": "system", "content": "w40"}, )" + shared,
           R"({"system": "w50", "conversations": [{"from": "system", "value": "w40"}, )" + shared,
           R"({"system": null, )" + (first + answer + "]}").substr(1),
           std::string(R"({"system": "w40", "prompt": "w30", "completion": "w41"})")})
    EXPECT_EQ(loss_of(line), plain) << line;

  // What has a weight of 0 is read alone.
  const std::string more = R"(, {"role": "user", "content": "w31"}, {"role": "assistant", "content": "w43 w44 w45"}]})";
  const auto tokens_of = [&](const std::string& record) {
    folder_.write("record.jsonl", record + "\n");
    return Json::parse(run({"eval", folder_ / "a", "--data", folder_ / "record.jsonl", "--json"}).out)["tokens"];
  };
  EXPECT_EQ(tokens_of(first + answer + more), 6);
  EXPECT_EQ(tokens_of(first + R"({"role": "assistant", "content": "w41", "weight": 0})" + more), 4);
  // So have the turns of a prompt beside a completion.
  EXPECT_EQ(tokens_of(R"({"prompt": [{"role": "user", "content": "w30"}, )" + answer +
                      R"(, {"role": "user", "content": "w31"}], "completion": "w43 w44 w45"})"),
      4);
  EXPECT_EQ(
      tokens_of(
          R"({"conversations": [{"from": "human", "value": "w30"}, {"from": "gpt", "value": "w41", "weight": 0}, )"
          R"({"from": "human", "value": "w31"}, {"from": "gpt", "value": "w43 w44 w45"}]})"),
      4);
}

TEST_F(Chat, ColumnsOfTablesAreAPromptAndItsCompletion) {
  ASSERT_EQ(train("a", "pairs.jsonl", {"max_steps=3"}).exit_code, 0);
  EXPECT_EQ(tokens("prompt\tcompletion\nw30\tw41 w42", "", "record.tsv"), 3);
  const Arguments named{"--text-column", "question", "--label-column", "answer"};
  EXPECT_EQ(tokens("question,answer\nw30,w41 w42", "", "record.csv", named), 3);
  EXPECT_EQ(tokens("question\tanswer\nw30\tw41 w42", "", "record.tsv", named), 3);
  EXPECT_EQ(tokens(R"({"question": "w30", "answer": "w41 w42"})", "", "record.jsonl", named), 3);
  EXPECT_EQ(tokens(R"({"question": "w30", "reply": "w41"})",
                "no \"question\" with \"answer\"; there are question, reply", "record.jsonl", named),
      -1);
}

// A greeting is no answer.
TEST_F(Chat, AFirstMessageIsReadAndNotLearned) {
  ASSERT_EQ(train("a", "pairs.jsonl", {"max_steps=3"}).exit_code, 0);
  const Json greeting = message("assistant", "w43 w44"), question = message("user", "w30"),
             answer = message("assistant", "w41 w42");
  EXPECT_EQ(tokens(Json{{"messages", {greeting, question, answer}}}.dump(), "answers that are not learned: 1."), 3);
  EXPECT_EQ(tokens(Json{{"messages", {greeting, question}}}.dump(), "no conversation has an answer"), -1);
}

// As of DeepSeek-R1-Distill: the answer follows a thought that the template leaves out, and may begin like its sign.
TEST_F(Chat, APromptMayEndInWhatTheConversationLacks) {
  const std::string turns = "{% for m in messages %}{{ 'w7' if m.role == 'user' else 'w8' }} {{ m.content }} w9 ",
                    prompt = "{% endfor %}{% if add_generation_prompt %}w8 w20 {% endif %}";
  folder_.write("llama/chat_template.jinja", turns + prompt);
  ASSERT_EQ(train("a", "pairs.jsonl", {"max_steps=3"}).exit_code, 0);
  const Json question = message("user", "w30"), answer = message("assistant", "w21 w22");
  EXPECT_EQ(tokens(Json{{"messages", {question, answer}}}.dump()), 3);
  EXPECT_EQ(tokens(Json{{"messages", {question, answer, question, answer}}}.dump()), 6);
  // What cannot be told from earlier turns is left out: here the last message alone ends in w10.
  folder_.write("llama/chat_template.jinja", turns + "{% if loop.last %}w10 {% endif %}" + prompt);
  const Outcome outcome = train("b", "pairs.jsonl", {"max_steps=3"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.error.find("answers that are not learned: 90."), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("no conversation has an answer"), std::string::npos) << outcome.error;
}

TEST_F(Chat, AnUnusualRoleIsNamedOnce) {
  folder_.write("llama/chat_template.jinja",
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ 'w7' if m.role == 'user' else 'w8' }} "
      "{{ m.content }} w9 {% endif %}{% endfor %}{% if add_generation_prompt %}w8 {% endif %}");
  ASSERT_EQ(train("a", "pairs.jsonl", {"max_steps=3"}).exit_code, 0);
  const std::string line = Json{{"messages", {message("user", "w30"), message("asistant", "w41"),
                                                 message("user", "w30"), message("assistant", "w41")}}}
                               .dump();
  folder_.write("odd.jsonl", line + "\n" + line + "\n");
  const Outcome outcome = run({"eval", folder_ / "a", "--data", folder_ / "odd.jsonl"}, {.log = "warning"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  const size_t told = outcome.error.find("odd.jsonl:1: the role \"asistant\" is unusual");
  EXPECT_NE(told, std::string::npos) << outcome.error;
  EXPECT_EQ(outcome.error.find("is unusual", told + 50), std::string::npos) << outcome.error;
}

// Each answer is learned as the model sees what it answers, though the template forgets earlier answers then.
TEST_F(Chat, ATemplateMayWriteEarlierTurnsDifferently) {
  folder_.write("llama/chat_template.jinja",
      "{% for m in messages %}{{ 'w7' if m.role == 'user' else 'w8' }} {% if m.role == 'user' or loop.last %}"
      "{{ m.content }}{% else %}w12{% endif %} w9 {% endfor %}{% if add_generation_prompt %}w8 {% endif %}");
  const Outcome trained = train("a", "messages.jsonl", {"lora.rank=0", "lora.alpha=16", "max_steps=150"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const std::string two = Json{{"messages", {message("user", "w30"), message("assistant", "w41 w42"),
                                                message("user", "w32"), message("assistant", "w44")}}}
                              .dump();
  folder_.write("two.jsonl", two + "\n");
  const Outcome outcome = run({"eval", folder_ / "a", "--data", folder_ / "two.jsonl", "--json"}, {.log = "info"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Json::parse(outcome.out)["tokens"], 5);  // of both answers, with what ends them
  EXPECT_NE(outcome.error.find("1 of 1 conversations are learned answer by answer"), std::string::npos)
      << outcome.error;
  EXPECT_LT(loss("a", "messages.jsonl"), 0.1);
}

TEST_F(Chat, ARunGoesOnToTheSameBits) {
  ASSERT_EQ(train("whole", "messages.jsonl", {"max_steps=40"}).exit_code, 0);
  ASSERT_EQ(train("parts", "messages.jsonl", {"max_steps=20"}).exit_code, 0);
  ASSERT_EQ(train("parts", "messages.jsonl", {"max_steps=40"}, {"--resume"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "parts/model.safetensors"), contents(folder_ / "whole/model.safetensors"));
}

// The preset reads conversations three times; asked for more steps, it takes them.
TEST_F(Chat, StepsAreTakenThoughThePresetLimitsEpochs) {
  const auto last_step = [&](const std::string& run_folder, const Arguments& more) {
    Arguments arguments{"train", "chat", "--run", folder_ / run_folder, "--data", folder_ / "pairs.jsonl", "--batch",
        "8", "--set", "model.from=" + model_, "--set", "context=20", "--set", "lora.rank=2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(lines(contents(folder_ / run_folder + "/metrics.jsonl")).back())["step"].get<int>();
  };
  const int of_epochs = last_step("epochs", {});
  EXPECT_EQ(last_step("steps", {"--steps", std::to_string(of_epochs + 7)}), of_epochs + 7);
}

// The preset's context is 512 tokens: of a model that takes fewer it is all of them.
TEST_F(Chat, AContextLongerThanTheModelTakesIsTheModels) {
  for (const char* context : {"context=512", "context=0"}) {
    const Outcome outcome = train(context, "pairs.jsonl", {context, "max_steps=2"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  }
  EXPECT_EQ(contents(folder_ / "context=512/model.safetensors"), contents(folder_ / "context=0/model.safetensors"));
}

// Weights that nothing changes are as large as the model: they are once in the folder, in their own form.
TEST_F(Chat, FrozenWeightsAreSavedOnce) {
  const Arguments settings{"max_steps=20", "lora.base_storage=int4", "eval_every=10", "save_every=10",
      "keep_checkpoints=2", "valid_text=" + folder_ / "messages.jsonl"};
  Arguments longer = settings;
  longer[0] = "max_steps=40";
  ASSERT_EQ(train("whole", "messages.jsonl", longer).exit_code, 0);
  ASSERT_EQ(train("parts", "messages.jsonl", settings).exit_code, 0);
  const std::string frozen = contents(folder_ / "parts/frozen.safetensors");
  ASSERT_EQ(train("parts", "messages.jsonl", longer, {"--resume"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "parts/frozen.safetensors"), frozen);
  for (const std::string file : {"model.safetensors", "checkpoints/40.safetensors"})
    EXPECT_EQ(contents(folder_ / ("parts/" + file)), contents(folder_ / ("whole/" + file)));
  EXPECT_EQ(contents(folder_ / "parts/model.safetensors").find("embedding"), std::string::npos);

  // What reads the run finds them: its own evaluation, its adapters, the average of its checkpoints.
  const double last = loss("whole", "messages.jsonl");
  const std::vector<std::string> metrics = lines(contents(folder_ / "whole/metrics.jsonl"));
  EXPECT_NEAR(Json::parse(metrics.back())["loss"].get<double>(), last, 1e-4);
  const Outcome adapters = run({"export", folder_ / "whole", "--adapter", folder_ / "adapter"});
  EXPECT_EQ(adapters.exit_code, 0) << adapters.error;
  const Outcome average = run({"average", folder_ / "whole", "--last", "1", "--out", folder_ / "average"});
  EXPECT_EQ(average.exit_code, 0) << average.error;
  EXPECT_EQ(loss("average", "messages.jsonl"), last);
  EXPECT_EQ(run({"info", folder_ / "average"}).out.find("nothing saved yet"), std::string::npos);

  std::filesystem::remove(folder_ / "average/frozen.safetensors");
  const Outcome missing = run({"eval", folder_ / "average", "--data", folder_ / "messages.jsonl"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.error.find("has the trained weights alone"), std::string::npos) << missing.error;
}

TEST_F(Chat, WhatCannotBeLearnedIsOneLine) {
  folder_.write("alone.jsonl", Json{{"messages", {message("user", "w1")}}}.dump());
  folder_.write("silent.jsonl", R"({"messages": [{"role": "user"}, {"role": "assistant", "content": "w3"}]})");
  folder_.write("null.jsonl",
      R"({"messages": [{"role": "user", "content": null, "tool_calls": null}, {"role": "assistant", "content": "w3"}]})");
  folder_.write("none.jsonl", R"({"messages": []})");
  folder_.write("numbers.jsonl", R"({"messages": [{"role": "user", "content": "w1"}], "tools": [3]})");
  folder_.write("picture.jsonl", R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})");
  folder_.write("tools.jsonl", Json{{"messages", {message("user", "w1")}}, {"tools", "w2"}}.dump());
  folder_.write("other.jsonl", R"({"text": "w1"})");
  folder_.write("lines.txt", R"({"prompt": "w1", "completion": "w2"})");
  folder_.write(
      "typo.jsonl", R"({"conversations": [{"from": "human", "value": "w1"}, {"from": "gpt", "valu": "w2"}]})");
  folder_.write("three.jsonl", R"({"conversations": [{"from": "human", "value": 3}, {"from": "gpt", "value": "w2"}]})");
  for (const std::string weight : {"0.5", "false"})
    folder_.write(weight + ".jsonl", R"({"messages": [{"role": "user", "content": "w1"}, {"role": "assistant",)"
                                     R"( "content": "w2", "weight": )" +
                                         weight + "}]}");
  folder_.write("tool.jsonl",
      Json{{"messages", {message("user", "w1"), message("tool", "w2"), message("assistant", "w3")}}}.dump());
  for (const auto& [data, part] :
      {std::pair{"alone.jsonl", "no conversation has an answer of the assistant"}, {"tool.jsonl", "tool.jsonl:1: "},
          {"silent.jsonl", "silent.jsonl:1: the conversation has a message of the role \"user\" without a \"content\""},
          {"picture.jsonl", "picture.jsonl:1: the conversation has a \"content\" that is no text"},
          {"tools.jsonl", "tools.jsonl:1: \"tools\" is no list of functions"},
          {"numbers.jsonl", "numbers.jsonl:1: \"tools\" is no list of functions"},
          {"null.jsonl", "null.jsonl:1: the conversation has a message of the role \"user\" without a \"content\""},
          {"none.jsonl", "none.jsonl:1: the conversation is an empty list"},
          {"typo.jsonl", "typo.jsonl:1: a turn from \"gpt\" has no text as its \"value\""},
          {"three.jsonl", "three.jsonl:1: a turn from \"human\" has no text as its \"value\""},
          {"0.5.jsonl", "0.5.jsonl:1: the conversation has a \"weight\" of 0.5, which is neither 0 nor 1"},
          {"false.jsonl", "false.jsonl:1: the conversation has a \"weight\" of false"},
          {"lines.txt",
              "lines.txt:1: there is no \"messages\", nor \"conversations\", nor \"prompt\" with "
              "\"completion\"; names of JSON lines end in .jsonl"},
          {"other.jsonl", "with \"completion\"; there are text; --text-column"}}) {
    const Outcome outcome = train("r", data);
    EXPECT_EQ(outcome.exit_code, 2) << data;
    EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  }
  const Outcome cut = train("r", "messages.jsonl", {"context=9", "max_steps=1"});
  EXPECT_EQ(cut.exit_code, 0) << cut.error;
  EXPECT_NE(cut.error.find("90 of 90 conversations are longer than 9 tokens and are cut there"), std::string::npos)
      << cut.error;
}
}  // namespace
}  // namespace linnet::testing
