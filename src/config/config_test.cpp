#include "config/config.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cfenv>
#include <limits>
#include <random>
#include <set>
#include "base/files.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "config/hints.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
std::string parse_error(const std::string& toml) {
  return error_of([&] { parse_config(toml, "config.toml"); });
}
std::string set_error(const std::string& text, Config config = {}) {
  return error_of([&] { set_value(config, text); });
}
// The error of validating the defaults after some --set.
std::string invalid(std::initializer_list<const char*> settings) {
  Config config;
  for (const char* setting : settings) set_value(config, setting);
  return error_of([&] { validate(config); });
}

TEST(Config, KeysFlatOrInSections) {
  const Config flat = parse_config("d_model = 64\nlearning_rate = 1\nbatch_size = 3\ntie_head = true\n", "flat");
  EXPECT_EQ(flat.model.d_model, 64);
  EXPECT_EQ(flat.train.learning_rate, 1.0);
  EXPECT_EQ(flat.data.batch_size, 3);
  EXPECT_TRUE(flat.model.tie_head);
  EXPECT_EQ(parse_config("[model]\nd_model = 64\ntie_head = true\n[train]\nlearning_rate = 1.0\n[data]\nbatch_size = 3",
                "sections"),
      flat);
  EXPECT_EQ(parse_config(
                "model.d_model = 64\nmodel.tie_head = true\ntrain.learning_rate = 1e0\ndata.batch_size = 3", "dotted"),
      flat);
  EXPECT_EQ(parse_config("\xEF\xBB\xBF# from Windows\r\nd_model = 64\r\nlearning_rate = 1\r\n[data]\r\nbatch_size = 3"
                         "\r\n[model]\r\ntie_head = true\r\n",
                "windows"),
      flat);
  EXPECT_EQ(parse_config("", "empty"), Config{});
}

TEST(Config, IsTheSameInEveryRoundingMode) {
  std::fesetround(FE_UPWARD);
  EXPECT_EQ(invalid({}), "no error");
  EXPECT_PRED2(has_text, invalid({"loss_scale=65537"}), "loss_scale = 65537.0 is not a power of two");
  std::fesetround(FE_TONEAREST);
}

// Without its section a key would mean two things.
TEST(Config, KeysHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) EXPECT_TRUE(names.insert(key.name).second) << key.name;
}

TEST(Config, ShortFormsYieldToTheKeysTheyStandFor) {
  const Config config = parse_config("num_decoder_layers = 2\nnum_layers = 6\n[data]\ndir = \"d\"", "c");
  EXPECT_EQ(config.model.num_encoder_layers, 6);
  EXPECT_EQ(config.model.num_decoder_layers, 2);
  EXPECT_EQ(config.data.data_dir, "d");
}

// A key that a task would ignore is a mistake: told where it was given, or where it differs from its default.
TEST(Config, KeysOfOtherTasksAreRefused) {
  Config mnist = load_config("mnist");
  EXPECT_EQ(error_of([&] { check_setting_belongs(mnist, "dropout=0.1"); }),
      "dropout=0.1: task = \"images\" with architecture = \"cnn\" has no \"dropout\"; in [model] it has "
      "architecture, from, filters");
  EXPECT_PRED2(
      has_text, error_of([&] { check_setting_belongs(mnist, "num_layers=6"); }), "has no \"num_encoder_layers\"");
  check_setting_belongs(mnist, "train.learning_rate=1");
  check_setting_belongs(load_config("mini-gpt"), "num_layers=6");
  check_keys_belong(mnist);
  mnist.model.dropout = 0.5;
  EXPECT_PRED2(has_text, error_of([&] { check_keys_belong(mnist); }), "config: task = \"images\"");
  Config dates = load_config("dates");
  dates.data.text = "a";
  EXPECT_PRED2(has_text, error_of([&] { check_keys_belong(dates); }), "has no \"text\"; in [data] it has task, ");
  // What `linnet presets NAME` prints, and a run folder holds, lists all keys.
  for (const Preset& preset : presets()) check_keys_belong(parse_config(to_toml(load_config(preset.name), true), "p"));
}

// A folder's configuration takes the place of the model's keys; presets and files of them may hold these keys.
TEST(Config, SettingsThatTheModelFolderDecidesAreRefused) {
  Config chat = load_config("chat");
  EXPECT_EQ(error_of([&] { check_setting_belongs(chat, "dropout=0.3"); }),
      "dropout=0.3: the model folder decides \"dropout\" (model.from = \"models/chat\")");
  for (const char* setting : {"model.d_model=64", "num_layers=2", "max_seq_len=64", "tie_head=true"})
    EXPECT_PRED2(has_text, error_of([&] { check_setting_belongs(chat, setting); }), "the model folder decides");
  for (const char* setting : {"architecture=llama", "model.from=b", "context=64", "lora.rank=2"})
    check_setting_belongs(chat, setting);
  check_keys_belong(chat);
  chat.model.from.clear();
  check_setting_belongs(chat, "dropout=0.3");
  Config t5 = load_config("t5-small");
  t5.model.from = "folder";
  check_setting_belongs(t5, "max_seq_len=32");  // pairs longer than this are left out
  set_value(t5, "architecture=marian");         // whose norm the folder has
  validate(t5);
}

TEST(Config, KeysOfImagesAndVisionTransformersAreChecked) {
  const auto refused = [](const std::vector<std::string>& settings, const std::string& part) {
    Config config = load_config("vit-tiny");
    for (const std::string& setting : settings) set_value(config, setting);
    EXPECT_PRED2(has_text, error_of([&] { validate(config); }), part);
  };
  refused({"image_memory=much"}, "image_memory = \"much\" is not an amount; write for example 4GiB or 500MB");
  refused({"image_memory=2"}, "image_memory = \"2\": give a unit, such as 2GB");
  refused({"image_size=1"}, "image_size = 1 is too small: at least 2 is needed");
  refused({"num_heads=5"}, "d_model = 192 is not divisible by num_heads = 5");
  refused({"patch_size=5"}, "image_size = 32 is not divisible by patch_size = 5");
  const Config vit = load_config("vit-tiny");
  validate(vit);
  for (const char* setting : {"num_layers=6", "patch_size=2", "augment_rotate=10", "augment_mixup=0.4"})
    check_setting_belongs(vit, setting);
  EXPECT_PRED2(has_text, error_of([&] { check_setting_belongs(vit, "depth=20"); }), "has no \"depth\"");
  EXPECT_PRED2(has_text, error_of([&] { check_setting_belongs(load_config("mnist"), "patch_size=2"); }),
      "has no \"patch_size\"");
  Config layers = vit;
  set_value(layers, "num_layers=4");  // both stacks, of which it has one
  check_keys_belong(layers);
  // The bits of a run do not depend on these.
  for (const char* key : {"image_memory", "image_threads"}) EXPECT_TRUE(may_change_on_resume(key)) << key;
  EXPECT_FALSE(may_change_on_resume("augment_rotate"));
}

TEST(Config, PathsThatTomlCannotHoldAreRefused) {
  Config config;
  config.data.train_source = config.data.train_target = "caf\xE9.txt";
  EXPECT_PRED2(has_text, error_of([&] { validate(config); }), "train_source: byte 4 of ");
}

TEST(Config, MisspeltKeysNameLineAndNearest) {
  EXPECT_EQ(parse_error("d_model = 64\n\nlearning_rat = 1.0\n"),
      "config.toml:3: unknown key \"learning_rat\" (did you mean \"learning_rate\"?)");
  EXPECT_EQ(parse_error("[train]\nmax_step = 1"),
      "config.toml:2: unknown key \"train.max_step\" (did you mean \"max_steps\"?)");
  EXPECT_EQ(parse_error("[modle]\nd_model = 1"), "config.toml:1: unknown section [modle] (did you mean [model]?)");
  EXPECT_EQ(parse_error("[train]\nd_model = 64"),
      "config.toml:2: unknown key \"train.d_model\" (\"d_model\" belongs in [model])");
  EXPECT_PRED2(has_text, parse_error("num_layer = 1"), "did you mean \"num_layers\"?");
  EXPECT_PRED2(has_text, parse_error("lr = 1"), "did you mean \"learning_rate\"?");
  EXPECT_PRED2(has_text, parse_error("Batch-Size = 1"), "did you mean \"batch_size\"?");
  EXPECT_EQ(parse_error("xylophone = 1"), "config.toml:1: unknown key \"xylophone\"");
  EXPECT_PRED2(has_text, parse_error("smoothing = 1"), "did you mean \"label_smoothing\"?");
}

TEST(Config, WrongTypesAndValuesNameTheExpected) {
  EXPECT_EQ(parse_error("d_model = \"64\""), "config.toml:1: \"d_model\" must be a whole number, got \"64\"");
  EXPECT_EQ(parse_error("d_model = 64.5"), "config.toml:1: \"d_model\" must be a whole number, got 64.5");
  EXPECT_EQ(parse_error("dropout = true"), "config.toml:1: \"dropout\" must be a number, got true");
  EXPECT_EQ(parse_error("tie_head = 1"), "config.toml:1: \"tie_head\" must be true or false, got 1");
  EXPECT_EQ(parse_error("task = 1"), "config.toml:1: \"task\" must be a text in quotes, got 1");
  EXPECT_PRED2(has_text, parse_error("d_model = [64]"), "must be a single value, not a list");
  EXPECT_PRED2(has_text, parse_error("d_model = {a = 1}"), "unknown section [d_model]");
  EXPECT_PRED2(has_text, parse_error("[model]\nd_model = {a = 1}"), "must be a single value, not a section");
  EXPECT_PRED2(has_text, parse_error("d_model = 2020-01-01"), "must be a single value, not a date or time");
  EXPECT_EQ(
      parse_error("\nd_model = -64"), "config.toml:2: \"d_model\" must be at least 2 and at most 1073741824, got -64");
  EXPECT_PRED2(has_text, parse_error("d_model = 0"), "must be at least 2");
  EXPECT_EQ(parse_error("dropout = 1.0"), "config.toml:1: \"dropout\" must be at least 0 and below 1, got 1.0");
  EXPECT_PRED2(has_text, parse_error("dropout = nan"), "got nan");
  EXPECT_PRED2(has_text, parse_error("learning_rate = inf"), "got inf");
  EXPECT_EQ(parse_error("norm = \"prae\""),
      "config.toml:1: \"norm\" must be one of \"post\", \"pre\", got \"prae\" (did you mean \"pre\"?)");
}

TEST(Config, DuplicatesAndBrokenSyntaxNameTheLine) {
  EXPECT_PRED2(has_text, parse_error("d_model = 64\nd_model = 32"), "config.toml:2: ");
  EXPECT_EQ(parse_error("d_model = 64\n[model]\nd_model = 32"), "config.toml:3: \"d_model\" is already set in line 1");
  EXPECT_PRED2(has_text, parse_error("d_model = 64\nd_ff = \n"), "config.toml:2: ");
  EXPECT_PRED2(has_text, parse_error("d_model = 64\n\n[model\n"), "config.toml:3: ");
  EXPECT_PRED2(has_text, parse_error("task = \"\xff\""), "config.toml:1: ");
  EXPECT_PRED2(has_text, parse_error("d_model = 64\n\xC3\xA4 = 1"), "config.toml:2: ");
  EXPECT_PRED2(has_text, parse_error("d_model = 64 \xC3\xA4"), "config.toml:1: ");
  EXPECT_PRED2(has_text, parse_error("d_model = 99999999999999999999"), "config.toml:1: ");
}

TEST(Config, SetTakesPlainAndPrefixedKeys) {
  Config config;
  for (const char* text : {"d_model=64", "train.learning_rate = 2e-3", "num_layers=5", "data.dir=/data", "dropout=0",
           "tie_head=true", "train_source=a=b.txt", "task=\"dates\"", "isa="})
    set_value(config, text);
  EXPECT_EQ(config.model.d_model, 64);
  EXPECT_EQ(config.train.learning_rate, 2e-3);
  EXPECT_EQ(config.model.num_encoder_layers, 5);
  EXPECT_EQ(config.model.num_decoder_layers, 5);
  EXPECT_EQ(config.data.data_dir, "/data");
  EXPECT_EQ(config.model.dropout, 0.0);
  EXPECT_TRUE(config.model.tie_head);
  EXPECT_EQ(config.data.train_source, "a=b.txt");
  EXPECT_EQ(config.data.task, "dates");
  EXPECT_EQ(config.train.isa, "");
}

TEST(Config, SetNamesItsArgument) {
  EXPECT_EQ(
      set_error("learning_rat=1"), "learning_rat=1: unknown key \"learning_rat\" (did you mean \"learning_rate\"?)");
  EXPECT_EQ(set_error("d_model"), "d_model: expected key=value");
  EXPECT_EQ(set_error("d_model=big"), "d_model=big: \"d_model\" must be a whole number, got \"big\"");
  EXPECT_EQ(set_error("d_model="), "d_model=: \"d_model\" must be a whole number, got \"\"");
  EXPECT_EQ(set_error("d_model=6x"), "d_model=6x: \"d_model\" must be a whole number, got \"6x\"");
  EXPECT_EQ(set_error("tie_head=yes"), "tie_head=yes: \"tie_head\" must be true or false, got \"yes\"");
  EXPECT_PRED2(has_text, set_error("model.learning_rate=1"), "belongs in [train]");
  EXPECT_PRED2(has_text, set_error("dropout=nan"), "must be at least 0 and below 1, got nan");
  EXPECT_PRED2(has_text, set_error("d_model=99999999999999999999"), "must be a whole number");
  EXPECT_PRED2(has_text, set_error("data_dir=\xff"), "not valid UTF-8");
  EXPECT_PRED2(has_text, set_error("dir=x"), "unknown key");
}

TEST(Config, ImpossibleCombinationsGiveTheFigures) {
  EXPECT_EQ(invalid({}), "no error");
  EXPECT_EQ(invalid({"num_heads=7"}), "config: d_model = 256 is not divisible by num_heads = 7");
  EXPECT_PRED2(has_text, invalid({"d_model=63", "num_heads=1"}), "d_model = 63 is odd");
  EXPECT_PRED2(has_text, invalid({"share_embeddings=true", "joint_vocab=false"}), "share_embeddings needs joint_vocab");
  EXPECT_EQ(invalid({"d_model=1073741824", "d_ff=1073741824", "num_layers=1000"}),
      "config: the parameters would take 7.38e+22 bytes, beyond any memory");
  EXPECT_PRED2(
      has_text, invalid({"batch_size=1073741824", "batch_tokens=0", "max_seq_len=1073741824"}), "a batch would take");
  EXPECT_PRED2(has_text, invalid({"batch_size=0", "batch_tokens=0"}), "both 0");
  EXPECT_PRED2(
      has_text, invalid({"batch_tokens=100"}), "batch_tokens = 100 does not hold one sentence of max_seq_len = 256");
  EXPECT_PRED2(has_text, invalid({"learning_rate=0"}), "learning_rate must be above 0");
  EXPECT_PRED2(has_text, invalid({"train_source=a"}), "train_source is given without train_target");
  EXPECT_PRED2(has_text, invalid({"train_source=a", "train_target=b", "train_tsv=c"}), "both given");
  EXPECT_PRED2(has_text, invalid({"task=dates", "train_tsv=c"}), "makes its own data");
  Config broken;
  broken.model.dropout = std::numeric_limits<double>::quiet_NaN();
  EXPECT_PRED2(has_text, error_of([&] { validate(broken); }), "\"dropout\" must be");
}

TEST(Config, RankZeroLeavesAPresetsAdaptersOut) {
  for (const char* preset : {"chat", "preferences"}) {
    Config config = load_config(preset);
    set_value(config, "lora.rank=0");
    EXPECT_EQ(config.lora, LoraConfig{}) << preset;
    validate(config);
    set_value(config, "lora.alpha=8");
    EXPECT_PRED2(has_text, error_of([&] { validate(config); }), "lora.alpha = 8.0 needs lora.rank");
  }
}

TEST(Config, PreferencesNeedABetaAndSmoothTheLabelsOfDpoAlone) {
  const auto problem = [](const char* method, const char* setting) {
    Config config = load_config("preferences");
    set_value(config, std::string("preferences.method=") + method);
    set_value(config, setting);
    return error_of([&] { validate(config); });
  };
  for (const char* method : {"dpo", "ipo"})
    EXPECT_EQ(problem(method, "beta=0"), "config: beta = 0 leaves \"" + std::string(method) + "\" nothing to learn");
  EXPECT_EQ(problem("orpo", "beta=0"), "no error");
  EXPECT_EQ(problem("dpo", "label_smoothing=0.1"), "no error");
  for (const char* method : {"ipo", "orpo"})
    EXPECT_PRED2(
        has_text, problem(method, "label_smoothing=0.1"), "label_smoothing is of preferences.method = \"dpo\"");
}

TEST(Config, PresetsLoadValidateAndSurviveTheirOwnText) {
  ASSERT_GE(presets().size(), 6u);
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    const Config config = load_config(preset.name);
    EXPECT_EQ(error_of([&] { validate(config); }), "no error");
    for (const bool comments : {false, true}) EXPECT_EQ(parse_config(to_toml(config, comments), "text"), config);
  }
  EXPECT_EQ(error_of([] { load_config("date"); }),
      "no preset and no file is called \"date\" (did you mean the preset \"dates\"?)");
  EXPECT_PRED2(has_text, error_of([] { load_config("missing.toml"); }), "cannot read 'missing.toml'");
  EXPECT_PRED2(has_text, error_of([] { load_config("src/config"); }), "Is a directory");
}

TEST(Config, AFileMayBeginWithAPreset) {
  Config wanted = load_config("classify");
  wanted.train.max_steps = 70, wanted.model.from = "folder";
  EXPECT_EQ(parse_config("preset = \"classify\"\nmax_steps = 70\n[model]\nfrom = \"folder\"\n", "a.toml"), wanted);
  const Config regress = parse_config("task = \"regression\"\npreset = \"classify\"\n", "a.toml");
  EXPECT_EQ(regress.train.metric, parse_config("task = \"regression\"", "a.toml").train.metric);
  EXPECT_EQ(regress.train.optimizer, wanted.train.optimizer);
  EXPECT_EQ(error_of([] { parse_config("seed = 1\npreset = \"clasify\"", "a.toml"); }),
      "a.toml:2: there is no preset \"clasify\" (did you mean the preset \"classify\"?)");
  EXPECT_PRED2(has_text, error_of([] { parse_config("preset = 3", "a.toml"); }), "a.toml:1: there is no preset");
}

TEST(Config, ImagesThatStartFromAVitsFolderHaveItsArchitecture) {
  const testing::TemporaryFolder folder;
  const auto architecture = [&](const std::string& file, const std::string& more) {
    folder.write("config.json", file);
    const std::string model = "[model]\nfrom = \"" + folder.path() + "\"\n";
    return parse_config("task = \"images\"\n" + more + model, "a").model.architecture;
  };
  EXPECT_EQ(architecture(R"({"model_type": "vit"})", ""), "vit");
  EXPECT_EQ(architecture(R"({"model_type": "vit"})", "architecture = \"resnet\"\n"), "resnet");
  EXPECT_EQ(architecture(R"({"architecture": "resnet18"})", ""), "cnn");  // timm's
}

TEST(Config, TheExampleIsThePreset) {
  EXPECT_EQ(changed_keys(load_config("examples/multi30k.toml"), load_config("multi30k")), std::vector<std::string>{});
}

TEST(Config, ACommentedConfigurationHasOnlyTheKeysOfItsTask) {
  const std::string images = to_toml(load_config("mnist"), true), pairs = to_toml(load_config("multi30k"), true);
  for (const char* key : {"\nfilters = ", "\nimage_size = "}) {
    EXPECT_PRED2(has_text, images, key);
    EXPECT_EQ(pairs.find(key), pairs.npos) << key;
  }
  for (const char* key : {"\nnum_heads = ", "\ntokenizer = ", "\ndropout = "}) {
    EXPECT_PRED2(has_text, pairs, key);
    EXPECT_EQ(images.find(key), images.npos) << key;
  }
}

TEST(Config, AnyValueSurvivesItsText) {
  Config config;
  config.data.data_dir = "a \"quoted\" \\ back\nline\t\x7f \xC3\xA4";
  config.train.learning_rate = 0.1 + 0.2;
  config.train.epsilon = 5e-324;
  config.train.clip_norm = 1e30;
  config.train.seed = (int64_t{1} << 53) - 1;
  EXPECT_EQ(parse_config(to_toml(config, true), "text"), config);
}

TEST(Config, ChangedKeysAndWhatResumeAllows) {
  Config changed;
  set_value(changed, "max_steps=5");
  set_value(changed, "d_ff=8");
  EXPECT_EQ(changed_keys(Config{}, changed), (std::vector<std::string>{"d_ff", "max_steps"}));
  Config wanted;
  wanted.train.seed = 9;
  EXPECT_EQ(keep_saved_values(changed, wanted), (std::vector<std::string>{"d_ff"}));  // max_steps may change
  EXPECT_EQ(wanted.model.d_ff, changed.model.d_ff);
  EXPECT_EQ(wanted.train.seed, 9);
  set_value(wanted, "d_ff=1024");  // a choice, though it is the default
  EXPECT_EQ(keep_saved_values(changed, wanted), std::vector<std::string>{});
  EXPECT_EQ(changed_keys(changed, wanted), (std::vector<std::string>{"d_ff", "max_steps", "seed"}));
  EXPECT_TRUE(may_change_on_resume("max_steps"));
  EXPECT_TRUE(may_change_on_resume("threads"));
  EXPECT_TRUE(may_change_on_resume("patience"));
  EXPECT_TRUE(may_change_on_resume("log_every"));
  EXPECT_FALSE(may_change_on_resume("d_ff"));
  EXPECT_FALSE(may_change_on_resume("seed"));
}

TEST(Config, AShardIsAnEqualPartOfABatch) {
  Config config = load_config("reference");
  config.data.batch_size = 16, config.train.data_shards = 4;
  validate(config);
  EXPECT_EQ(of_one_shard(config).data.batch_size, 4);
  config.train.data_shards = 3;
  EXPECT_THROW(validate(config), Error);
  config.train.data_shards = 0, config.process = {1, 2};
  EXPECT_EQ(of_one_shard(config).data.batch_size, 8);
}

TEST(Config, AMicroBatchIsAnEqualPartOfAShardAndIsAccumulated) {
  Config config = load_config("reference");
  config.data.batch_size = 12, config.train.data_shards = 3, config.train.accumulate_steps = 5;
  EXPECT_EQ(of_one_shard(config).train.accumulate_steps, 5);
  ASSERT_TRUE(double_micro_batches(config));
  ASSERT_TRUE(double_micro_batches(config));
  EXPECT_EQ(config.train.micro_batches, 4);
  EXPECT_EQ(of_one_shard(config).data.batch_size, 1);
  EXPECT_EQ(of_one_shard(config).train.accumulate_steps, 20);
  EXPECT_FALSE(double_micro_batches(config));
  EXPECT_EQ(config.train.micro_batches, 4);
  config.train.micro_batches = 5;
  EXPECT_THROW(validate(config), Error);
}

TEST(Config, LayoutsOfRanks) {
  const auto expect = [](const char* parallel, int ranks, int data, int tensor, int pipeline) {
    const RankLayout layout = parallel_layout(parallel, ranks);
    EXPECT_EQ(layout.data, data) << parallel;
    EXPECT_EQ(layout.tensor, tensor) << parallel;
    EXPECT_EQ(layout.pipeline, pipeline) << parallel;
  };
  expect("data=2,tensor=4,pipeline=8", 64, 2, 4, 8);
  expect("tensor=4", 8, 2, 4, 1);
  expect("data=2,tensor=2", 4, 2, 2, 1);
  expect("", 8, 8, 1, 1);
  expect("tensor=1", 1, 1, 1, 1);
  expect("pipeline=2", 4, 2, 1, 2);
  for (const char* wrong : {"data=3", "data=1,tensor=2", "tensor=3", "tensor=2,tensor=2", "rows=2", "tensor=0",
           "tensor=x", "tensor", "tensor=", "tensor=2;data=2"})
    EXPECT_THROW(parallel_layout(wrong, 8), Error) << wrong;
}

TEST(Config, ATeacherGoesWithDataParallelAlone) {
  Config config = load_config("mini-gpt");
  config.distillation.teacher = "folder", config.train.sample_length = 0;
  for (const char* parallel : {"tensor=2", "pipeline=2", "data=2,tensor=2"}) {
    config.train.parallel = parallel;
    EXPECT_PRED2(has_text, error_of([&] { validate(config); }), "a teacher goes with data parallel alone");
  }
  for (const char* parallel : {"", "data=2", "tensor=1"}) {
    config.train.parallel = parallel;
    EXPECT_EQ(error_of([&] { validate(config); }), "no error") << parallel;
  }
}

TEST(Config, AShardIsAPartOfWhatGroupsOfRanksTrainOnTogether) {
  Config config = load_config("reference");
  config.data.batch_size = 16, config.train.parallel = "tensor=2", config.process = {0, 4};
  EXPECT_EQ(of_one_shard(config).data.batch_size, 8);
}

TEST(Config, ParallelArrangesRanks) {
  const RankLayout layout = parallel_layout("data=2,pipeline=3", 6);
  EXPECT_EQ(layout.data, 2);
  EXPECT_EQ(layout.tensor, 1);
  EXPECT_EQ(layout.pipeline, 3);
  EXPECT_EQ(parallel_layout("pipeline=3", 6).data, 2);
  EXPECT_THROW(parallel_layout("pipeline=3", 4), Error);
  EXPECT_THROW(parallel_layout("pipeline=2,pipeline=2", 4), Error);
  const RankLayout split = parallel_layout("tensor=2,pipeline=encoder-decoder", 8);
  EXPECT_EQ(split.data, 2);
  EXPECT_EQ(split.pipeline, 2);
  EXPECT_TRUE(split.splits_encoder);
  EXPECT_FALSE(layout.splits_encoder);
  EXPECT_EQ(parallel_layout("pipeline=2,interleave=3", 4).interleave, 3);
  EXPECT_EQ(parallel_layout("pipeline=2,interleave=3", 4).data, 2);
  EXPECT_EQ(layout.interleave, 1);
  for (const char* wrong : {"interleave=2", "tensor=2,interleave=2", "pipeline=encoder-decoder,interleave=2",
           "pipeline=decoder-encoder", "pipeline=2,interleave=0"})
    EXPECT_THROW(parallel_layout(wrong, 4), Error) << wrong;
}

TEST(Config, EveryKeyIsDocumentedAndItsDefaultIsValid) {
  Config config;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_NE(std::string(key.meaning), "") << key.name;
    EXPECT_EQ(assign_field(key, config, field_value(key, Config{})), "") << key.name;
  }
}

TEST(Config, DataPathsJoinTheFolder) {
  DataConfig data;
  EXPECT_EQ(data_path(data, "a.txt"), "a.txt");
  data.data_dir = "/data/x";
  EXPECT_EQ(data_path(data, "a.txt"), "/data/x/a.txt");
  EXPECT_EQ(data_path(data, "/b.txt"), "/b.txt");
  EXPECT_EQ(data_path(data, ""), "");
}

// Damaged files are read or refused with one line, never more.
TEST(Config, DamagedTextNeverCrashes) {
  const std::string text = to_toml(load_config("multi30k"), false);
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text.substr(0, random() % (text.size() + 1));
    for (int flips = 0; flips < 3 && !damaged.empty(); ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    parse_error(damaged);
  }
}

TEST(Hints, CountEditsAndSwaps) {
  EXPECT_EQ(edit_distance<char>("", "abc"), 3);
  EXPECT_EQ(edit_distance<char>("abc", "abc"), 0);
  EXPECT_EQ(edit_distance<char>("d_modle", "d_model"), 1);
  EXPECT_EQ(edit_distance<char>("kitten", "sitting"), 3);
}

// A task that the table of keys offers and the table of tasks lacks would end a program with an internal error.
TEST(Config, EveryTaskThatCanBeChosenHasARow) {
  const auto key = std::ranges::find(config_keys(), std::string_view("task"), &ConfigKey::name);
  ASSERT_NE(key, config_keys().end());
  EXPECT_EQ(key->choices.size(), task_rows().size());
  for (const std::string& task : key->choices) {
    Config config;
    config.data.task = task;
    EXPECT_EQ(task_row(config).name, task);
    EXPECT_FALSE(task_row(config).architectures.empty());
  }
}

TEST(Config, ModelAndMetricFollowTheTaskUnlessTheyAreGiven) {
  const auto chosen = [](const std::string& toml) {
    const Config config = parse_config(toml, "f");
    return config.model.architecture + " " + config.train.metric;
  };
  EXPECT_EQ(chosen(""), "transformer bleu");
  EXPECT_EQ(chosen("[data]\ntask = \"language\"\n"), "gpt loss");
  EXPECT_EQ(chosen("task = \"classification\"\n"), "bert accuracy");
  EXPECT_EQ(chosen("task = \"classification\"\nmetric = \"f1\"\n"), "bert f1");
  EXPECT_EQ(chosen("task = \"images\"\narchitecture = \"resnet\"\n"), "resnet accuracy");
}
}  // namespace
}  // namespace linnet
