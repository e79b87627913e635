// Packed parameters: a model that reads them gives the bits that it gives when it is quantized while it is loaded.
#include "models/nn/parameter_file.h"
#include <gtest/gtest.h>
#include <malloc.h>
#include <cmath>
#include <fstream>
#include "error_of.h"
#include "models/nn/forward.h"
#include "models/nn/layers.h"
#include "models/nn/model_store.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
// 37 columns: blocks that are not full, and bytes that are padded.
struct Net : Module {
  Net() : words{this, "words", 100, 37, normal_init(1)}, fc{this, "fc", 37, 48}, small{this, "small", 48, 3} {}
  Tensor operator()(Tensor ids) { return small(fc(words(ids))); }
  Embedding words;
  Linear fc, small;
};

struct Format {
  QuantizationWords words;
  std::map<std::string, FileDType> dtypes = {};
  bool maps = true;
};

std::vector<Format> formats() {
  return {{{}}, {{.quantize = "bf16"}}, {{.quantize = "int8"}}, {{.quantize = "int8-weights", .keep = {"fc.*"}}},
      {{.quantize = "int4-weights"}}, {{.quantize = "int4-weights", .tables = "bf16"}},
      {{}, {{"fc.weight", FileDType::kBF16}}, false}};
}

class ParameterFiles : public ::testing::Test {
 protected:
  ParameterFiles() { use_packed_models(); }
  ~ParameterFiles() override { set_packed_reader(kPackedEnding, nullptr); }

  static void fill(const ParameterLayout& layout, const ParameterTarget& target) {
    for (const ParameterSlot& slot : layout.parameters()) {  // by name: the order differs
      const std::span values(target.flat + slot.offset, static_cast<size_t>(slot.spec.shape.elements()));
      initialize(slot.spec.initializer, slot.spec.name, 1, slot.spec.shape, values);
      if (slot.spec.name == "fc.weight")  // numbers of bf16, as a folder of that type has them
        for (float& value : values) value = std::round(value * 64) / 64;
    }
  }

  std::vector<WeightSource> sources(const Format& format, Store& store, const ParameterLayout& layout) {
    declare_model(store, layout);
    store.allocate();
    ThreadPool pool(1);
    load_into(store, layout, pool, [&](const ParameterTarget& target) { fill(layout, target); });
    return parameter_sources(store, layout, format.dtypes);
  }

  void pack(const Format& format) {
    const ParameterLayout layout(net_, {}, format.words.parsed());
    Store store;
    save_packed_model(path_, {.weights = sources(format, store, layout),
                                 .metadata = {{kParametersKey, parameters_metadata(format.words)}, {"step", "7"}},
                                 .files = {{"config.json", "{}"}}});
  }

  std::vector<float> output(const WeightQuantization& quantization, const std::function<void(Forward&)>& load) {
    const auto function = [&](Trace& trace) {
      trace.graph().output("y", net_(trace.input("ids", {DType::kI32, {2, 5}})));
    };
    Forward forward(net_, {function}, ForwardOptions{.threads = 1, .quantization = quantization});
    load(forward);
    forward.set("ids", std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 99, 0});
    const std::span<const float> y = forward.run().output("y");
    return {y.begin(), y.end()};
  }

  // The message of the user error that reading the file gives.
  std::string problem() {
    const std::string message = error_of([&] {
      const auto file = ParameterFile::open(path_);
      if (!file) fail_user("net.linnet has no parameters");
      output(file->words().parsed(), [&](Forward& forward) {
        if (!forward.load(*file))
          forward.load([&](const ParameterTarget& target) { file->read(forward.layout(), target); });
      });
    });
    EXPECT_TRUE(message == "no error" || has_text(message, "net.linnet")) << message;
    return message;
  }

  Net net_;
  const testing::TemporaryFolder folder_;
  const std::string path_ = folder_ / "net.linnet";
};

TEST_F(ParameterFiles, AModelReadsTheBitsThatItIsQuantizedTo) {
  for (const Format& format : formats()) {
    pack(format);
    const WeightQuantization quantization = quantization_of(path_, {});
    EXPECT_EQ(quantization, format.words.parsed());
    const auto file = ParameterFile::open(path_);
    ASSERT_TRUE(file);
    const std::vector<float> expected = output(quantization,
        [](Forward& forward) { forward.load([&](const ParameterTarget& target) { fill(forward.layout(), target); }); });
    EXPECT_EQ(file->can_map(ParameterLayout(net_, {}, quantization)), format.maps) << format.words.text();
    const auto read_from = [&](const ParameterFile& from) {
      return output(quantization, [&](Forward& forward) { EXPECT_TRUE(forward.load(from)); });
    };
    EXPECT_EQ(read_from(*file), expected) << format.words.text();
    // Copied instead of mapped.
    const SafetensorsFile tensors(path_, SafetensorsTypes::kAll);
    EXPECT_EQ(read_from(ParameterFile(tensors, nullptr)), expected) << format.words.text();
  }
}

// For programs that know nothing of quantized weights: exports, training.
TEST_F(ParameterFiles, AModelInFp32ReadsTheNumbersThatCodesStandFor) {
  for (const Format& format : formats()) {
    pack(format);
    const auto file = ParameterFile::open(path_);
    const ParameterLayout whole(net_), packed(net_, {}, format.words.parsed());
    std::vector<float> values(static_cast<size_t>(whole.parameter_count())), original(values.size());
    file->read(whole, values.data());
    fill(whole, original.data());
    for (const ParameterSlot& slot : whole.parameters()) {
      const auto here =
          std::ranges::find(packed.parameters(), slot.spec.name, [](const auto& s) { return s.spec.name; });
      for (int64_t i = 0; i < slot.spec.shape.elements(); ++i) {
        const auto at = static_cast<size_t>(slot.offset + i);
        if (!packed.is_quantized(*here)) {
          EXPECT_EQ(values[at], original[at]) << slot.spec.name;
        } else {
          EXPECT_NEAR(values[at], original[at], 0.4) << slot.spec.name;
        }
      }
    }
  }
}

TEST_F(ParameterFiles, OtherQuantizationThanThePackedOneIsRefused) {
  pack({{.quantize = "int8"}});
  EXPECT_NO_THROW(quantization_of(path_, parse_quantization("int8")));
  EXPECT_THROW(quantization_of(path_, parse_quantization("int4-weights")), Error);
  EXPECT_THROW(quantization_of(path_, parse_quantization("int8", {"fc.*"})), Error);
  pack({});
  EXPECT_EQ(quantization_of(path_, parse_quantization("int8")), parse_quantization("int8"));
}

struct LargeNet : Module {
  LargeNet() : words{this, "words", 8192, 1024, normal_init(1)}, fc{this, "fc", 1024, 1024} {}
  Tensor operator()(Tensor ids) { return fc(words(ids)); }
  Embedding words;
  Linear fc;
};

// Memory of this process alone that was written to, in bytes.
int64_t private_dirty_bytes() {
  std::ifstream smaps("/proc/self/smaps_rollup");
  for (std::string line; std::getline(smaps, line);)
    if (line.starts_with("Private_Dirty:")) return std::stoll(line.substr(14)) << 10;
  return -1;
}

// What processes share is not memory of each: the pages of the file are the weights.
TEST_F(ParameterFiles, TheWeightsAreNoMemoryOfTheProcess) {
  LargeNet net;
  if (private_dirty_bytes() < 0) GTEST_SKIP() << "the system does not tell what memory is private";
  for (const char* word : {"none", "bf16", "int8", "int4-weights"}) {
    const QuantizationWords words{word};
    const ParameterLayout layout(net, {}, words.parsed());
    size_t weights = 0;
    {
      Store store;
      declare_model(store, layout);
      store.allocate();
      ThreadPool pool(2);
      initialize_quantized(store, layout, 1, pool);
      layout.initialize_parameters(1, store.as<float>("parameters"), pool);
      save_packed_model(
          path_, {parameter_sources(store, layout, {}), {{kParametersKey, parameters_metadata(words)}}, {}});
      weights = layout.quantized_bytes() + static_cast<size_t>(layout.stored_count()) * sizeof(float);
    }
    malloc_trim(0);
    const int64_t before = private_dirty_bytes();
    const auto function = [&](Trace& trace) {
      trace.graph().output("y", net(trace.input("ids", {DType::kI32, {1, 4}})));
    };
    Forward forward(net, {function}, ForwardOptions{.threads = 1, .quantization = words.parsed()});
    const auto file = ParameterFile::open(path_);
    ASSERT_TRUE(file && forward.load(*file));
    forward.set("ids", std::vector<int32_t>{1, 2, 3, 4});
    forward.run();
    EXPECT_LT(private_dirty_bytes() - before, static_cast<int64_t>(weights / 2)) << word << " of " << weights;
  }
}

// Files that have the right checksum and are wrong all the same.
TEST_F(ParameterFiles, TensorsThatAreMissingOrOfAnotherShapeAreNamed) {
  for (const char* word : {"int8", "int8-weights", "int4-weights", "bf16", "none"}) {
    const Format format{{.quantize = word}};
    const ParameterLayout layout(net_, {}, format.words.parsed());
    Store store;
    const std::vector<WeightSource> all = sources(format, store, layout);
    const SafetensorsMetadata metadata{{kParametersKey, parameters_metadata(format.words)}};
    save_packed_model(path_, {all, metadata, {}});
    ASSERT_EQ(problem(), "no error");
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].name.starts_with("linnet.")) continue;
      std::vector<WeightSource> without = all, other_shape = all, other_type = all;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      save_packed_model(path_, {without, metadata, {}});
      EXPECT_NE(problem(), "no error") << word << ", without " << all[i].name;
      other_shape[i].shape = Shape{all[i].shape.elements(), 1};
      save_packed_model(path_, {other_shape, metadata, {}});
      EXPECT_NE(problem(), "no error") << word << ", other shape of " << all[i].name;
      if (file_dtype_size(all[i].dtype) == 4) {
        other_type[i].dtype = all[i].dtype == FileDType::kI32 ? FileDType::kF32 : FileDType::kI32;
        save_packed_model(path_, {other_type, metadata, {}});
        EXPECT_NE(problem(), "no error") << word << ", other type of " << all[i].name;
      }
    }
    for (const char* words :
        {"", "[]", "{\"quantize\": \"int3\", \"tables\": \"\", \"keep\": []}", "{\"quantize\": 1}"}) {
      save_packed_model(path_, {all, {{kParametersKey, words}}, {}});
      EXPECT_NE(problem(), "no error") << words;
    }
  }
}
}  // namespace
}  // namespace linnet
