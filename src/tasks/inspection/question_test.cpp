// Attention maps and attributions of model folders against those that transformers computed in float64
// (tests/golden/make_inspections.py), up to what the page holds.
#include "tasks/inspection/question.h"
#include <gtest/gtest.h>
#include <cstring>
#include "data/text/unicode/utf8.h"
#include "formats/safetensors.h"
#include "models/families/pretrained.h"
#include "parsed_json.h"
#include "training/report/report_page.h"

namespace linnet {
namespace {
const std::string kFolder = "tests/golden/pretrained/";
constexpr int64_t kSteps = 32;  // as make_inspections.py

template <class T> std::vector<T> reference(const std::string& name) {
  static const SafetensorsFile file(kFolder + "inspections.safetensors");
  const SafetensorsEntry& entry = file.at(name);
  std::vector<T> values(static_cast<size_t>(entry.type.shape.elements()));
  EXPECT_EQ(values.size() * sizeof(T), entry.bytes()) << name;
  std::memcpy(values.data(), entry.data, entry.bytes());
  return values;
}

template <class A, class B>
void expect_near(const std::vector<A>& ours, const std::vector<B>& theirs, double tolerance, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(static_cast<double>(ours[i]), static_cast<double>(theirs[i]), tolerance) << what << " at " << i;
}

void expect_rows_of_one(const std::vector<double>& weights, size_t keys, double tolerance, const std::string& what) {
  for (size_t row = 0; row < weights.size(); row += keys) {
    double sum = 0;
    for (size_t i = row; i < row + keys; ++i) sum += weights[i];
    EXPECT_NEAR(sum, 1, tolerance) << what << ", row " << row / keys;
  }
}

Question ask_any(Module& module, const std::string& name) {
  if (auto* model = dynamic_cast<EncoderDecoder*>(&module))
    return ask(*model, reference<int32_t>(name + ".source"), reference<int32_t>(name + ".target_in"));
  const std::vector<int32_t> tokens = reference<int32_t>(name + ".tokens");
  if (auto* model = dynamic_cast<CausalModel*>(&module)) return ask(*model, tokens);
  if (auto* model = dynamic_cast<SequenceClassifier*>(&module)) return ask(*model, tokens);
  return ask(dynamic_cast<MaskedLanguageModel&>(module), tokens);
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  Golden() : name(GetParam()), model(open_pretrained(kFolder + name)), question(ask_any(*model.module, name)) {
    question.load = [this](const ParameterLayout& layout, const ParameterTarget& values) {
      load_parameters(model, layout, values);
    };
    const std::vector<int32_t> answer = reference<int32_t>(name + ".answer");
    question.answers = {{.position = answer[0]}};
  }

  const std::string name;
  const PretrainedModel model;
  Question question;
};

TEST_P(Golden, FindsTheAttentionAndTheSharesOfTransformers) {
  const Findings found = look_inside(question, kSteps, 2);
  for (size_t i = 0; i < found.attention.size(); ++i) {
    const InspectedAttention& map = found.attention[i];
    const std::string what = name + ".attention." + std::to_string(i);
    expect_near(map.weights, reference<double>(what), 2e-6, what);
    const size_t keys = question.sequences[map.keys].ids.size();
    expect_rows_of_one({map.weights.begin(), map.weights.end()}, keys, 1e-5, what);
  }
  ASSERT_EQ(found.answers.size(), 1u);
  const FoundAnswer& answer = found.answers[0];
  EXPECT_EQ(answer.id, reference<int32_t>(name + ".answer")[1]);
  const std::vector<double> both{answer.log_probabilities[static_cast<size_t>(answer.id)], answer.baseline};
  expect_near(both, reference<double>(name + ".log_probabilities"), 1e-5, "log probabilities");
  for (size_t i = 0; i < question.sequences.size(); ++i)
    expect_near(answer.shares[i], reference<double>(name + ".shares." + question.sequences[i].input), 2e-5, "shares");
}

// The page's own data, decoded as its script does it.
TEST_P(Golden, ThePageHoldsRowsThatSumToOne) {
  question.answers.clear();
  const Findings found = look_inside(question, kSteps, 2);
  Inspection inspection{.model = "a </script> b", .kind = "model"};
  for (const QuestionSequence& sequence : question.sequences)
    inspection.sequences.push_back({sequence.input, std::vector<std::string>(sequence.ids.size(), "<t>")});
  for (const InspectedAttention& map : found.attention)
    inspection.attention.push_back({map.module, map.queries, map.keys, map.heads, map.weights});
  const std::string page = inspection_page(inspection), begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  const auto data = ParsedJson::parse(page.substr(from, page.find("</script>", from) - from));
  ASSERT_GT(data["attention"].size(), 1u);
  for (size_t i = 0; i < data["attention"].size(); ++i) {
    std::string bytes;
    ASSERT_TRUE(decode_base64(data["attention"][i]["weights"].get<std::string>(), bytes));
    std::vector<double> weights;
    for (size_t at = 0; at + 1 < bytes.size(); at += 2)
      weights.push_back(
          (static_cast<unsigned char>(bytes[at]) + 256 * static_cast<unsigned char>(bytes[at + 1])) / 65535.0);
    const std::string what = name + ".attention." + std::to_string(i);
    expect_near(weights, reference<double>(what), 2e-5, what);
    expect_rows_of_one(weights, question.sequences[found.attention[i].keys].ids.size(), 1e-4, what);
  }
  const auto json = ParsedJson::parse(inspection_json(inspection));
  EXPECT_EQ(json["attention"][0]["weights"][0][0][0].get<float>(), found.attention[0].weights[0]);
}

INSTANTIATE_TEST_SUITE_P(Folders, Golden,
    testing::Values("gpt2", "llama", "mistral", "bert_classifier", "bert_masked", "marian", "t5"),
    [](const auto& info) { return std::string(info.param); });

TEST(Question, QueriesAndKeysBelongToTheirSequences) {
  PretrainedModel model = open_pretrained(kFolder + "marian");
  Question question = ask_any(*model.module, "marian");
  question.load = [&](const ParameterLayout& layout, const ParameterTarget& values) {
    load_parameters(model, layout, values);
  };
  std::vector<std::string> found;
  for (const InspectedAttention& map : look_inside(question, 1).attention)
    found.push_back(map.module + " " + std::to_string(map.queries) + std::to_string(map.keys));
  EXPECT_EQ(
      found, (std::vector<std::string>{"encoder.layers.0.self_attn 00", "decoder.layers.0.self_attn 11",
                 "decoder.layers.0.cross_attn 10", "decoder.layers.1.self_attn 11", "decoder.layers.1.cross_attn 10"}));
}
}  // namespace
}  // namespace linnet
