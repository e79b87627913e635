// A classifier of images through the command line: it learns, it goes on from where it stopped, and says what is wrong.
#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include "formats/safetensors.h"
#include "integration/made_images.h"
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
namespace {
class Images : public ::testing::Test {
 protected:
  Images() {
    write_images(folder_, "train", 400);
    write_images(folder_, "t10k", 100);
  }
  Outcome train_images(const std::string& run_folder, const Arguments& more = {}) const {
    Arguments arguments{"train", "mnist", "--run", folder_ / run_folder, "--set", "data.dir=" + folder_.path(), "--set",
        "max_steps=120", "--set", "eval_every=40", "--set", "held_out_images=50", "--set", "batch_size=32", "--set",
        "save_every=40", "--set", "learning_rate=0.01"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.log = "info"});
  }
  // The folder of the same images, where every third has a class of its own.
  std::string three_classes() const {
    std::filesystem::create_directories(folder_ / "three");
    for (const std::string prefix : {"train", "t10k"}) {
      std::string labels = contents(folder_ / (prefix + "-labels-idx1-ubyte"));
      for (size_t i = 8; i < labels.size(); i += 3) labels[i] = '\2';
      folder_.write("three/" + prefix + "-labels-idx1-ubyte", labels);
      folder_.write("three/" + prefix + "-images-idx3-ubyte", contents(folder_ / (prefix + "-images-idx3-ubyte")));
    }
    return folder_ / "three";
  }
  TemporaryFolder folder_;
};

TEST_F(Images, AreLearnedAndEvaluated) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Outcome trained = train_images(precision, {"--set", std::string("precision=") + precision});
    ASSERT_EQ(trained.exit_code, 0) << trained.error;
    const Outcome evaluated = run({"eval", folder_ / precision, "--json"});
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
    const auto json = ParsedJson::parse(evaluated.out);
    EXPECT_EQ(json["images"], 100);
    EXPECT_GT(json["accuracy"].get<double>(), 0.97);
  }
}

// A run's network goes out as ONNX and starts another run, which needs the file no more.
TEST_F(Images, AnOnnxNetworkIsTrained) {
  ASSERT_EQ(train_images("run").exit_code, 0);
  ASSERT_EQ(run({"export", folder_ / "run", "--onnx", folder_ / "onnx"}).exit_code, 0);
  const std::string file = folder_ / "onnx/model.onnx";
  const Outcome trained = train_images("again", {"--set", "model.from=" + file, "--set", "max_steps=40"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  // Other classes get a new last layer.
  const Outcome other = train_images("other", {"--set", "data.dir=" + three_classes(), "--set", "model.from=" + file});
  ASSERT_EQ(other.exit_code, 0) << other.error;
  EXPECT_NE(other.error.find("a new one, for 3 classes"), std::string::npos) << other.error;
  ASSERT_EQ(run({"export", folder_ / "other", "--onnx", folder_ / "three_onnx"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "three_onnx/network.onnx"));  // the network before training
  const Outcome packed = run({"pack", folder_ / "other", "-o", folder_ / "other.linnet"});
  EXPECT_EQ(packed.exit_code, 2);
  EXPECT_NE(packed.error.find("has the network of an ONNX file"), std::string::npos) << packed.error;
  const std::string kept = "whose weights cannot be quantized: they stay in fp32";
  expect_user_error(run({"eval", folder_ / "other", "--quantize", "int4-weights"}), kept);
  const Arguments calibration{"--calibrate", folder_ / "three", "-o", folder_ / "quantized"};
  for (const std::string& model : {folder_ / "other", file}) {
    Arguments quantize{"quantize", model};
    quantize.insert(quantize.end(), calibration.begin(), calibration.end());
    expect_user_error(run(quantize), kept);
  }
  expect_user_error(run({"eval", file}), "--set model.from=" + file + "` trains it");
  expect_user_error(run({"export", folder_ / "other", "--out", folder_ / "none"}), "no model folder of its network");
  std::filesystem::remove(file);
  const Outcome evaluated = run({"eval", folder_ / "again", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.error;
  EXPECT_GT(ParsedJson::parse(evaluated.out)["accuracy"].get<double>(), 0.97);

  const Outcome missing = train_images("none", {"--set", "model.from=" + file});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.error.find("cannot read '" + file), std::string::npos) << missing.error;
}

// Events have the gradient of the last micro-batch, which is computed again: statistics of batches must not notice.
TEST_F(Images, EventsChangeNoBitOfAResidualNetwork) {
  const auto trained = [&](const std::string& events) {
    const Outcome outcome =
        train_images(events, {"--set", "architecture=resnet", "--set", "depth=8", "--set", "max_steps=6", "--set",
                                 "eval_every=3", "--set", "micro_batches=2", "--set", "tensorboard=" + events});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return contents(folder_ / events + "/model.safetensors");
  };
  EXPECT_EQ(trained("false"), trained("true"));
  EXPECT_EQ(read_metrics(folder_ / "false"), read_metrics(folder_ / "true"));
}

// A residual network's file, with other classes than the data's: frozen stages stay as they are, statistics included.
TEST_F(Images, AResidualNetworkIsFineTuned) {
  const Arguments small{"--set", "architecture=resnet", "--set", "depth=8", "--set", "max_steps=40"};
  ASSERT_EQ(train_images("first", small).exit_code, 0);
  const std::string out = folder_ / "out", again = folder_ / "again";
  ASSERT_EQ(run({"export", folder_ / "first", "--out", out}).exit_code, 0);
  // What stays in 32 bits is said.
  const Outcome dynamic =
      run({"export", folder_ / "first", "--onnx", folder_ / "dynamic", "--precision", "int8-dynamic"}, {.log = "info"});
  EXPECT_NE(dynamic.error.find("% of the numbers 8 bits"), std::string::npos) << dynamic.error;
  std::filesystem::remove(out + "/images.json");  // torchvision's files have no names of classes
  Arguments tune{"--set", "data.dir=" + three_classes(), "--set", "model.from=" + out + "/model.safetensors", "--set",
      "freeze=conv1.*,bn1.*,layer1.*", "--set", "class_weights=balanced", "--set", "max_steps=40"};
  const Outcome trained = train_images("again", tune);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_NE(trained.error.find("a new one, for 3 classes"), std::string::npos) << trained.error;
  ASSERT_EQ(run({"export", again, "--out", folder_ / "tuned"}).exit_code, 0);
  const SafetensorsFile before(out + "/model.safetensors"), after(folder_ / "tuned/model.safetensors");
  for (const SafetensorsEntry& entry : before.entries()) {
    const SafetensorsEntry& now = after.at(entry.name);
    if (entry.name.starts_with("fc.")) continue;
    const bool same = std::memcmp(now.data, entry.data, entry.bytes()) == 0;
    EXPECT_EQ(same, !entry.name.starts_with("layer2") && !entry.name.starts_with("layer3")) << entry.name;
  }
  EXPECT_EQ(after.at("fc.weight").type.shape[0], 3);
  std::filesystem::remove_all(out);  // the run does not need it
  tune.insert(tune.end(), {"--resume", "--steps", "45"});
  const Outcome resumed = train_images("again", tune);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.error;
  const auto scores = ParsedJson::parse(run({"eval", again, "--json"}).out);
  EXPECT_TRUE(scores["classes"].contains("2"));
  EXPECT_EQ(scores["confusion"].size(), 3u);
  EXPECT_TRUE(scores.contains("f1_macro"));
}

TEST_F(Images, WhatDoesNotFitThePicturesIsRefused) {
  write_pictures(folder_, 2);
  const auto train = [&](const std::string& setting) {
    return run({"train", "images", "--data", folder_ / "pictures", "--run", folder_ / "my run", "--set",
                   "image_size=12", "--steps", "2", "--batch", "2", "--set", setting},
        {.log = "info"});
  };
  EXPECT_NE(train("augment_shift=0").error.find("or set fewer aside (data.held_out"), std::string::npos);
  write_pictures(folder_, 60);
  for (const char* setting : {"augment_shift=13", "augment_cutout=13"})
    EXPECT_NE(train(setting).error.find("may not exceed the images' size, 12 x 12"), std::string::npos) << setting;
  const Outcome trained = train("augment_shift=1");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_NE(trained.error.find("`linnet info '" + folder_ / "my run" + "'`"), std::string::npos) << trained.error;
}

TEST_F(Images, FoldersOfPicturesOfAnySize) {
  write_pictures(folder_, 120);
  const Outcome trained = run({"train", "images", "--data", folder_ / "pictures", "--run", folder_ / "run", "--set",
      "image_size=12", "--steps", "60", "--batch", "16", "--set", "eval_every=30"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const auto json = ParsedJson::parse(run({"eval", folder_ / "run", "--json"}).out);
  EXPECT_EQ(json["split"], "test");
  EXPECT_EQ(json["images"], 12);
  EXPECT_GT(json["accuracy"].get<double>(), 0.9);
  const Outcome valid = run({"eval", folder_ / "run", "--split", "valid", "--json"});
  EXPECT_EQ(ParsedJson::parse(valid.out)["images"], 12);

  // All pictures, as eval counts them and as predict tells their classes.
  const auto all = ParsedJson::parse(run({"eval", folder_ / "run", "--data", folder_ / "pictures", "--json"}).out);
  EXPECT_EQ(all["images"], 120);
  const Outcome predicted = run({"predict", folder_ / "run", folder_ / "pictures", "--json"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.error;
  double right = 0;
  for (const std::string& line : lines(predicted.out)) {
    const auto picture = ParsedJson::parse(line);
    right +=
        picture["image"].get<std::string>().find("/" + picture["label"].get<std::string>() + "/") != std::string::npos;
    EXPECT_GE(picture["probability"].get<double>(), 0.5);
  }
  EXPECT_DOUBLE_EQ(right / 120, all["accuracy"].get<double>());
  const Outcome piped = run({"predict", folder_ / "run"}, {.input = folder_ / "pictures/upper/0.bmp" + "\n"});
  EXPECT_EQ(lines(piped.out).size(), 1u) << piped.error;
  EXPECT_EQ(run({"predict", folder_ / "run", folder_ / "run"}).exit_code, 2);
  // A damaged picture is named; the others are classified.
  const std::string damaged = folder_.write("damaged.png", "\x89PNG\r\n\x1a\nno picture");
  const Outcome others =
      run({"predict", folder_ / "run", folder_ / "pictures/upper/0.bmp", damaged, folder_ / "pictures/lower/1.bmp"});
  EXPECT_EQ(others.exit_code, 2);
  EXPECT_EQ(lines(others.out).size(), 2u) << others.error;
  EXPECT_NE(others.error.find("damaged.png"), std::string::npos) << others.error;
  EXPECT_NE(others.error.find("1 image of 3"), std::string::npos) << others.error;
}

// Pictures of which the upper half, the left half, both or none are bright, in a table: several labels and a number
// each.
class ImageTables : public Images {
 protected:
  ImageTables() {
    std::string several = "file,label\n", numbers;
    for (int i = 0; i < 80; ++i) {
      const bool upper = i % 2, left = i / 2 % 2;
      const std::string name = "picture " + std::to_string(i) + ".bmp";
      write_bmp(folder_, "shown/" + name, 10, 10, [&](int row, int column) {
        return 20 + 7 * (i % 5) + (upper && row < 5 ? 100 : 0) + (left && column < 5 ? 100 : 0);
      });
      several += name + (upper && left ? ",left; upper\n" : upper ? ",upper\n" : left ? ",left\n" : ",\n");
      numbers += ParsedJson{{"image", name}, {"score", {upper + 0.5 * left, left - upper}}}.dump() + "\n";
    }
    folder_.write("shown/several.csv", several), folder_.write("shown/numbers.jsonl", numbers);
  }
  Outcome train(const std::string& preset, const std::string& table, const std::string& run_folder,
      const Arguments& settings = {}) const {
    Arguments all{"train", preset, "--data", folder_ / ("shown/" + table), "--run", folder_ / run_folder};
    add_settings(all, {"image_size=12", "max_steps=120", "eval_every=40", "save_every=40", "batch_size=16",
                          "schedule=constant", "learning_rate=3e-3", "patience=0", "threads=1"});
    for (const std::string& setting : settings) {
      if (!setting.starts_with("--")) all.push_back("--set");
      all.push_back(setting);
    }
    return run(all, {.log = "info"});
  }
  ParsedJson evaluation(const std::string& model, const Arguments& more = {}) const {
    Arguments all{"eval", folder_ / model, "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out);
  }
  // Of the pictures 0 (none), 1 (upper), 2 (left) and 3 (both).
  std::vector<ParsedJson> predictions(const std::string& model) const {
    Arguments all{"predict", folder_ / model, "--json"};
    for (int i = 0; i < 4; ++i) all.push_back(folder_ / ("shown/picture " + std::to_string(i) + ".bmp"));
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    std::vector<ParsedJson> found;
    for (const std::string& line : lines(outcome.out)) found.push_back(ParsedJson::parse(line));
    return found;
  }
};

const Arguments kSmallVit{
    "architecture=vit", "patch_size=4", "d_model=16", "num_heads=2", "num_layers=2", "d_ff=32", "dropout=0"};

TEST_F(ImageTables, SeveralLabelsAreLearnedExportedAndStartedFrom) {
  const Outcome trained = train("label-images", "several.csv", "run", kSmallVit);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const ParsedJson scores = evaluation("run", {"--data", folder_ / "shown/several.csv"});
  EXPECT_EQ(scores["images"], 80);
  EXPECT_GT(scores["f1"].get<double>(), 0.95);
  EXPECT_GT(scores["f1_macro"].get<double>(), 0.95);
  EXPECT_TRUE(scores["classes"].contains("left")) << scores.dump();
  EXPECT_EQ(evaluation("run")["images"], 8);
  EXPECT_EQ(predictions("run")[0]["labels"].size(), 0u);
  EXPECT_EQ(predictions("run")[3]["labels"], (std::vector<std::string>{"left", "upper"}));
  const Outcome listed = run({"predict", folder_ / "run", folder_ / "shown/several.csv"});
  EXPECT_EQ(lines(listed.out).size(), 80u) << listed.error;
  const Outcome piped = run({"run", folder_ / "run"}, {.input = folder_ / "shown/picture 1.bmp" + "\n"});
  EXPECT_TRUE(piped.out.starts_with("upper\t0.9")) << piped.out << piped.error;

  // A folder says by transformers' word what its outputs are, and another run begins with it.
  ASSERT_EQ(run({"export", folder_ / "run", "--out", folder_ / "vit"}).exit_code, 0);
  const auto config = ParsedJson::parse(contents(folder_ / "vit/config.json"));
  EXPECT_EQ(config["problem_type"], "multi_label_classification");
  EXPECT_EQ(config["id2label"]["1"], "upper");
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(predictions("vit")[i]["labels"], predictions("run")[i]["labels"]);
  const Outcome again = train("label-images", "several.csv", "again",
      {"architecture=vit", "model.from=" + folder_ / "vit", "max_steps=1", "learning_rate=1e-7"});
  ASSERT_EQ(again.exit_code, 0) << again.error;
  EXPECT_GT(evaluation("again", {"--data", folder_ / "shown/several.csv"})["f1"].get<double>(), 0.95);
  ASSERT_EQ(run({"export", folder_ / "run", "--onnx", folder_ / "onnx"}).exit_code, 0);
  EXPECT_EQ(ParsedJson::parse(contents(folder_ / "onnx/images.json"))["problem_type"], "multi_label_classification");
}

TEST_F(ImageTables, NumbersAreLearnedWholeAndResumed) {
  const Arguments mixed{"augment_mixup=0.2", "augment_shift=1"};
  const Outcome trained = train("regress-images", "numbers.jsonl", "run");
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const ParsedJson scores = evaluation("run", {"--data", folder_ / "shown/numbers.jsonl"});
  EXPECT_GT(scores["pearson"].get<double>(), 0.9);
  EXPECT_LT(scores["mse"].get<double>(), 0.2);
  EXPECT_NEAR(scores["mse"].get<double>(), scores["loss"].get<double>(), 1e-6);
  EXPECT_NEAR(predictions("run")[3]["numbers"][0].get<double>(), 1.5, 0.6);
  EXPECT_NEAR(predictions("run")[2]["numbers"][1].get<double>(), 1, 0.6);

  const auto with = [&](Arguments more) {
    more.insert(more.end(), mixed.begin(), mixed.end());
    return more;
  };
  ASSERT_EQ(train("regress-images", "numbers.jsonl", "whole", with({"max_steps=60"})).exit_code, 0);
  ASSERT_EQ(train("regress-images", "numbers.jsonl", "parts", with({"max_steps=40"})).exit_code, 0);
  ASSERT_EQ(train("regress-images", "numbers.jsonl", "parts", with({"max_steps=60", "--resume"})).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "parts/model.safetensors"), contents(folder_ / "whole/model.safetensors"));
  EXPECT_EQ(
      run({"check", "regress-images", "--data", folder_ / "shown/numbers.jsonl", "--set", "image_size=12"}).exit_code,
      0);
  for (const char* preset : {"images", "mnist"}) {  // of images that are not there
    const Outcome assumed = run({"plan", preset, "--data", folder_ / "nowhere"});
    EXPECT_EQ(assumed.exit_code, 0) << assumed.error;
  }
  const Outcome planned = run({"plan", "regress-images", "--data", folder_ / "shown/numbers.jsonl"});
  EXPECT_EQ(planned.exit_code, 0) << planned.error;
}

// The same pictures in folders and in a table of one class each, with files from elsewhere.
TEST_F(ImageTables, ClassesAndOtherTables) {
  std::string table = "what\twhere\tlabel\n";
  for (int i = 0; i < 40; ++i)
    table += "x\t" + (i % 3 ? "picture " + std::to_string(i) : folder_ / ("shown/picture " + std::to_string(i))) +
             ".bmp\t" + (i % 2 ? "upper" : "other") + "\n";
  folder_.write("shown/classes.tsv", table);
  const Arguments columns{"text_column=where", "valid_tsv=" + folder_ / "shown/classes.tsv", "max_steps=60"};
  const Outcome trained = train("images", "classes.tsv", "run", columns);
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_NE(trained.error.find("40 images to train on, 40 to choose by"), std::string::npos) << trained.error;
  EXPECT_GT(evaluation("run", {"--split", "valid"})["accuracy"].get<double>(), 0.95);
  EXPECT_EQ(run({"predict", folder_ / "run", folder_ / "shown/classes.tsv", "--csv"}).exit_code, 0);
}

TEST_F(ImageTables, WhatIsWrongIsSaidInOneLine) {
  folder_.write("shown/broken.bmp", "BMno picture");
  for (const auto& [preset, table, message] :
      {std::tuple{"images", "file,label\npicture 1.bmp,a\ngone.bmp,b\n", "x.csv:3: there is no image '"},
          {"images",
              "file,label\npicture 1.bmp,a\npicture 2.bmp,b\npicture 3.bmp,a\npicture 4.bmp,b\npicture "
              "5.bmp,a\npicture "
              "6.bmp,b\n"
              "picture 7.bmp,a\nbroken.bmp,b\n",
              "broken.bmp'"},
          {"images", "file,label\npicture 1.bmp,a\npicture 2.bmp,\n", "x.csv:3: the label is empty"},
          {"images", "file,label\n,a\npicture 1.bmp,b\n", "x.csv:2: the name of the image is empty"},
          {"images", "file,kind\npicture 1.bmp,a\n",
              "no field is called \"label\" (there are file, kind; the first line of a .csv file is its heading)"},
          {"images", "photo,label\npicture 1.bmp,a\n",
              "no field is called \"file\" (there are photo, label; the first line of a .csv file is its heading)"},
          {"images", "file,label\npicture 1.bmp,0.5\npicture 2.bmp,1\n",
              "--set data.task=images_regression learns numbers"},
          {"images", "file,label\npicture 1.bmp,a\npicture 2.bmp,b\npicture 3.bmp,a;b\n",
              "--set data.task=images_several_labels learns several"},
          {"label-images", "file,label\npicture 1.bmp,\n", "has no label"},
          {"regress-images", "file,label\npicture 1.bmp,2\npicture 2.bmp,two\n",
              "x.csv:3: the label 'two' is no number"}}) {
    folder_.write("shown/x.csv", table);
    const Outcome outcome = train(preset, "x.csv", "run");
    EXPECT_EQ(outcome.exit_code, 2) << table << outcome.error;
    EXPECT_NE(lines(outcome.error).back().find(message), std::string::npos) << outcome.error;
  }
  for (const auto& [preset, setting, message] :
      {std::tuple{"images", "label_column=labels", "there is no field \"labels\", which label_column names"},
          {"label-images", "label_smoothing=0.1", "label_smoothing must be 0"},
          {"regress-images", "class_weights=balanced", "has no class_weights"}}) {
    const Outcome outcome = train(preset, "several.csv", "run", {setting});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error;
  }
  const Outcome folder = run({"train", "label-images", "--data", folder_ / "shown", "--run", folder_ / "run"});
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_NE(folder.error.find("reads a table of files and labels"), std::string::npos) << folder.error;
}

// Augmented training has the same weights with any number of decoding threads, from files and from memory, whole and
// resumed.
TEST_F(Images, ChangedImagesGiveTheSameRunHoweverTheyAreMade) {
  write_pictures(folder_, 60);
  const auto train = [&](const std::string& run_folder, const Arguments& more) {
    Arguments arguments{"train", "images", "--data", folder_ / "pictures", "--run", folder_ / run_folder};
    add_settings(arguments, {"image_size=10", "batch_size=8", "max_steps=20", "eval_every=10", "save_every=5",
                                "schedule=constant", "augment_shift=1", "augment_rotate=15", "augment_cutout=2",
                                "augment_mirror=true", "augment_mixup=0.3", "label_smoothing=0.1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  };
  const auto weights = [&](const std::string& run_folder) {
    return contents(folder_ / (run_folder + "/model.safetensors"));
  };
  train("whole", {"--set", "image_threads=1"});
  train("files", {"--set", "image_memory=1KiB", "--set", "image_threads=3"});
  train("parts", {"--set", "max_steps=10"});
  train("parts", {"--resume", "--set", "max_steps=20", "--set", "image_memory=2000B", "--set", "image_threads=2"});
  EXPECT_EQ(weights("files"), weights("whole"));
  EXPECT_EQ(weights("parts"), weights("whole"));
  const Outcome evaluated = run({"eval", folder_ / "files", "--json"});
  EXPECT_EQ(ParsedJson::parse(evaluated.out)["images"], 6) << evaluated.error;
}

TEST_F(Images, WeightsOfAnotherStorageAreExported) {
  folder_.write("stored.toml",
      "[data]\ntask = \"images\"\nbatch_size = 32\nheld_out_images = 50\n"
      "[model]\narchitecture = \"vit\"\npatch_size = 3\nd_model = 16\nnum_heads = 2\nnum_encoder_layers = 1\nd_ff = "
      "32\n"
      "[train]\nmax_steps = 2\n[[train.groups]]\nparameters = \"*.linear1.weight\"\nstorage = \"bf16\"\n");
  const Outcome trained = run({"train", folder_ / "stored.toml", "--data", folder_.path(), "--run", folder_ / "run"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  ASSERT_EQ(run({"export", folder_ / "run", "--out", folder_ / "vit"}).exit_code, 0);
  const SafetensorsFile own(folder_ / "run/model.safetensors"), exported(folder_ / "vit/model.safetensors");
  const SafetensorsEntry& weight = own.at("layers.0.linear1.weight");
  const std::byte* found = exported.at("vit.encoder.layer.0.intermediate.dense.weight").data;
  EXPECT_EQ(std::memcmp(found, weight.data, weight.type.bytes()), 0);
}

// A vision Transformer learns, goes out as a folder that others read, and such a folder starts another run.
TEST_F(Images, AVisionTransformerIsTrainedExportedAndStartedFrom) {
  const auto settings = [](const Arguments& names) {
    Arguments arguments;
    add_settings(arguments, names);
    return arguments;
  };
  const Arguments sizes = settings({"patch_size=3", "d_model=16", "num_heads=2", "num_encoder_layers=2", "d_ff=32"});
  const auto train = [&](const std::string& run_folder, Arguments more) {
    Arguments arguments{"train", "vit-tiny", "--data", folder_.path(), "--run", folder_ / run_folder};
    if (!starts_from_folder(more)) arguments.insert(arguments.end(), sizes.begin(), sizes.end());
    const Arguments common =
        settings({"image_size=0", "batch_size=32", "held_out_images=50", "augment_shift=0", "augment_mirror=false",
            "augment_mixup=0", "warmup_steps=10", "learning_rate=0.005", "eval_every=60", "save_every=60"});
    arguments.insert(arguments.end(), common.begin(), common.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const auto accuracy = [&](const std::string& run_folder) {
    const Outcome evaluated = run({"eval", folder_ / run_folder, "--json"});
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.error;
    return ParsedJson::parse(evaluated.out)["accuracy"].get<double>();
  };
  const Outcome trained = train("run", settings({"max_steps=180"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  EXPECT_GT(accuracy("run"), 0.95);
  const Outcome exported = run({"export", folder_ / "run", "--out", folder_ / "vit"});
  ASSERT_EQ(exported.exit_code, 0) << exported.error;
  const auto config = ParsedJson::parse(contents(folder_ / "vit/config.json"));
  EXPECT_EQ(config["architectures"][0], "ViTForImageClassification");
  EXPECT_EQ(config["patch_size"], 3);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "vit/preprocessor_config.json"));

  // The folder alone tells the classes that the run tells, also of pictures whose sides are cropped.
  for (const bool upper : {true, false})
    write_bmp(folder_, upper ? "upper.bmp" : "lower.bmp", 4 * kSize, 2 * kSize, [&](int row, int column) {
      const bool middle = column >= kSize && column < 3 * kSize;
      return ((row < kSize) == upper) == middle ? 200 : 20;
    });
  const auto predict = [&](const std::string& model) {
    const Outcome predicted = run({"predict", folder_ / model, folder_ / "upper.bmp", folder_ / "lower.bmp"});
    EXPECT_EQ(predicted.exit_code, 0) << predicted.error;
    return lines(predicted.out);
  };
  ASSERT_EQ(predict("vit").size(), 2u);
  EXPECT_EQ(predict("vit"), predict("run"));
  const Outcome evaluated = run({"eval", folder_ / "vit", "--data", folder_.path()});
  EXPECT_EQ(evaluated.exit_code, 2);
  EXPECT_NE(evaluated.error.find("models of images are evaluated as runs"), evaluated.error.npos) << evaluated.error;
  EXPECT_NE(predict("vit")[0].substr(0, 1), predict("vit")[1].substr(0, 1));
  const Outcome piped = run({"run", folder_ / "vit"}, {.input = folder_ / "upper.bmp" + "\n"});
  EXPECT_EQ(piped.exit_code, 0) << piped.error;

  // So does one file.
  const Outcome packed = run({"pack", folder_ / "vit", "-o", folder_ / "vit.linnet"});
  ASSERT_EQ(packed.exit_code, 0) << packed.error;
  EXPECT_EQ(predict("vit.linnet"), predict("vit"));
  const Outcome int8 = run({"pack", folder_ / "vit", "-o", folder_ / "int8.linnet", "--quantize", "int8"});
  ASSERT_EQ(int8.exit_code, 0) << int8.error;
  EXPECT_NE(int8.out.find("weights int8"), std::string::npos) << int8.out;
  EXPECT_EQ(predict("int8.linnet")[0].substr(0, 1), predict("vit")[0].substr(0, 1));
  const Outcome served = run({"serve", folder_ / "vit.linnet"});
  EXPECT_EQ(served.exit_code, 2);
  EXPECT_NE(served.error.find("classifies images; `linnet predict` does that"), std::string::npos) << served.error;
  const Outcome nothing = run({"serve", "runs/lr=0.1"});  // no name, as no folder 0.1 exists
  EXPECT_NE(nothing.error.find("there is no model 'runs/lr=0.1'"), std::string::npos) << nothing.error;

  // One small step leaves what was learned.
  const std::string from = "model.from=" + folder_ / "vit";
  Arguments more = settings({"max_steps=1", "learning_rate=1e-6", "final_learning_rate=0"});
  add_settings(more, {from});
  const Outcome again = train("again", more);
  ASSERT_EQ(again.exit_code, 0) << again.error;
  std::filesystem::remove_all(folder_ / "vit");
  EXPECT_NEAR(accuracy("again"), accuracy("run"), 0.03);
  const Outcome onnx = run({"export", folder_ / "again", "--onnx", folder_ / "onnx"});
  EXPECT_EQ(onnx.exit_code, 0) << onnx.error;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "onnx/model.onnx"));

  const Outcome uneven = train("uneven", settings({"patch_size=4"}));
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_NE(uneven.error.find("cannot be cut into patches of 4 x 4"), std::string::npos) << uneven.error;
}

// A residual network is calibrated, packed, trained for int8, and says the same classes throughout.
// Pictures in color make a model of three channels; MNIST's files have one.
TEST_F(Images, AModelForColorLearnsFromGreyImages) {
  for (int i = 0; i < 40; ++i)
    write_bmp(folder_, std::string("color/") + "ab"[i % 2] + "/" + std::to_string(i) + ".bmp", kSize, kSize,
        [&](int row, int column) { return (row * 31 + column * 7 + i * 50) % 256; });
  const auto learn = [&](const std::string& name, const std::string& data, const Arguments& more) {
    Arguments arguments{"train", "vit-tiny", "--data", data, "--run", folder_ / name, "--set", "image_size=0", "--set",
        "batch_size=16", "--set", "held_out=0.2", "--set", "held_out_images=0", "--steps", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Outcome color = learn("color_run", folder_ / "color",
      {"--set", "patch_size=3", "--set", "d_model=16", "--set", "num_heads=2", "--set", "num_encoder_layers=1", "--set",
          "d_ff=32"});
  ASSERT_EQ(color.exit_code, 0) << color.error;
  ASSERT_EQ(run({"export", folder_ / "color_run", "--out", folder_ / "vit"}).exit_code, 0);
  ASSERT_EQ(run({"export", folder_ / "color_run", "--onnx", folder_ / "onnx"}).exit_code, 0);
  const Outcome vit = learn("grey_vit", folder_.path(), {"--set", "model.from=" + folder_ / "vit"});
  EXPECT_EQ(vit.exit_code, 0) << vit.error;
  const Outcome onnx = train_images("grey_onnx", {"--set", "model.from=" + folder_ / "onnx/model.onnx"});
  EXPECT_EQ(onnx.exit_code, 0) << onnx.error;
  for (const std::string name : {"grey_vit", "grey_onnx"}) {
    const Outcome evaluated = run({"eval", folder_ / name, "--json"});
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.error;
    const Outcome further = run({"train", folder_ / name, "--resume", "--steps", "130", "--set", "max_epochs=0"});
    EXPECT_EQ(further.exit_code, 0) << further.error;
  }
}

TEST_F(Images, AResidualNetworkRunsInInt8) {
  write_pictures(folder_, 120);
  const std::string pictures = folder_ / "pictures", trained = folder_ / "run", fixed = folder_ / "static";
  const Arguments training{"train", "resnet20", "--data", pictures, "--set", "depth=8", "--set", "image_size=12",
      "--batch", "16", "--set", "eval_every=30", "--set", "warmup_steps=5", "--set", "augment_shift=0", "--set",
      "augment_cutout=0"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    Arguments arguments = training;
    arguments.insert(arguments.end(), {"--run", out});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  };
  const auto predict = [&](const std::string& model, const Arguments& more = {}) {
    Arguments arguments{"predict", model, pictures};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.out;
  };
  const auto accuracy = [&](const std::string& model, const Arguments& more = {}) {
    Arguments arguments{"eval", model, "--data", pictures, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return ParsedJson::parse(outcome.out)["accuracy"].get<double>();
  };
  const auto pack = [&](const std::string& model, const std::string& file, const Arguments& more) {
    Arguments arguments{"pack", model, "-o", folder_ / file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return std::filesystem::file_size(folder_ / file);
  };
  train(trained, {"--steps", "60", "--lr", "0.02"});
  const double exact = accuracy(trained);
  EXPECT_GT(exact, 0.9);
  EXPECT_NEAR(accuracy(trained, {"--quantize", "int8"}), exact, 0.03);

  const Outcome quantized = run({"quantize", trained, "--calibrate", pictures, "-o", fixed});
  ASSERT_EQ(quantized.exit_code, 0) << quantized.error;
  EXPECT_NE(quantized.out.find("7 layers in static int8"), std::string::npos) << quantized.out;
  EXPECT_NEAR(accuracy(fixed), exact, 0.03);
  EXPECT_EQ(accuracy(fixed, {"--quantize", "none"}), exact);
  EXPECT_NE(predict(fixed), predict(trained));
  EXPECT_EQ(predict(fixed, {"--threads", "1"}), predict(fixed, {"--threads", "2"}));

  const auto whole = pack(trained, "whole.linnet", {});
  EXPECT_LT(pack(trained, "small.linnet", {"--quantize", "int8"}), whole * 0.4);
  EXPECT_EQ(predict(folder_ / "small.linnet"), predict(trained, {"--quantize", "int8"}));
  pack(fixed, "static.linnet", {"--quantize", "int8"});
  EXPECT_EQ(predict(folder_ / "static.linnet"), predict(fixed));

  std::string paths, labels;
  for (const std::string& line : lines(predict(folder_ / "static.linnet"))) {
    paths += line.substr(line.rfind('\t') + 1) + "\n";
    labels += line.substr(0, line.rfind('\t')) + "\n";
  }
  const Outcome answered = run({"run", folder_ / "static.linnet"}, {.input = paths});
  EXPECT_EQ(answered.exit_code, 0) << answered.error;
  EXPECT_EQ(answered.out, labels);

  train(folder_ / "aware", {"--init", trained, "--set", "quantize=int8", "--steps", "10", "--lr", "0.001"});
  EXPECT_NEAR(accuracy(folder_ / "aware"), exact, 0.05);
  EXPECT_NE(predict(folder_ / "aware"), predict(folder_ / "aware", {"--quantize", "none"}));
}

TEST_F(Images, NeverMoreThanHalfIsHeldOut) {
  ASSERT_EQ(train_images("run", {"--set", "held_out_images=5000", "--steps", "5"}).exit_code, 0);
  const auto json = ParsedJson::parse(run({"eval", folder_ / "run", "--split", "valid", "--json"}).out);
  EXPECT_EQ(json["images"], 200);
}

TEST_F(Images, AResumedRunIsTheUndisturbedOne) {
  // Another end of the training changes the rates of every other schedule.
  ASSERT_EQ(train_images("whole", {"--set", "schedule=constant"}).exit_code, 0);
  ASSERT_EQ(train_images("parts", {"--set", "max_epochs=2", "--set", "schedule=constant"}).exit_code, 0);
  ASSERT_EQ(train_images("parts", {"--resume", "--set", "schedule=constant"}).exit_code, 0);
  EXPECT_EQ(contents(folder_ / "whole/model.safetensors"), contents(folder_ / "parts/model.safetensors"));
}

TEST_F(Images, WhatIsWrongIsSaidInOneLine) {
  expect_user_error(train_images("a", {"--set", "metric=bleu"}), "no metric");
  expect_user_error(train_images("a", {"--set", "architecture=transformer"}), "does not go with");
  write_bmp(folder_, "dots/a/1.bmp", 1, 1, [](int, int) { return 9; });
  write_bmp(folder_, "dots/b/1.bmp", 1, 1, [](int, int) { return 8; });
  expect_user_error(train_images("a", {"--set", "data.dir=" + folder_ / "dots"}), "at least 2x2 pixels are needed");
  expect_user_error(train_images("a", {"--set", "data.dir=/nowhere"}), "/nowhere");
  for (int i = 0; i < 9; ++i)
    write_bmp(folder_, "alone/a/" + std::to_string(i) + ".bmp", 6, 6, [](int x, int) { return x; });
  expect_user_error(train_images("a", {"--set", "data.dir=" + folder_ / "alone"}), "has one class only");
  ASSERT_EQ(train_images("run").exit_code, 0);
  expect_user_error(run({"eval", folder_ / "run", "--data-dir", folder_ / "run"}), "run");
  expect_user_error(run({"translate", folder_ / "run"}), "not translation");
  folder_.write("run/images.json", "{\"height\": 6}");
  expect_user_error(run({"eval", folder_ / "run"}), "images.json");
}
}  // namespace
}  // namespace linnet::testing
