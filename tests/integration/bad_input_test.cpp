// Whatever is wrong with what a user gives: one line that says what and where, exit code 2, and nothing on disk is
// lost.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include "integration/program.h"

namespace linnet::testing {
namespace {
void expect_refused(const Outcome& outcome, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  EXPECT_EQ(outcome.error.rfind("linnet: ", 0), 0u) << outcome.error;
  for (const std::string& part : parts)
    EXPECT_NE(outcome.error.find(part), outcome.error.npos) << "no '" << part << "' in " << outcome.error;
}

// The same in the middle of a run, which has printed its progress by then.
void expect_stopped(Outcome outcome, const std::vector<std::string>& parts) {
  const size_t last = outcome.error.rfind('\n', outcome.error.size() - 2);
  if (last != outcome.error.npos) outcome.error.erase(0, last + 1);
  expect_refused(outcome, parts);
}

class BadInput : public ::testing::Test {
 protected:
  // Trains on two files.
  Outcome train_on(const std::string& source, const std::string& target) const {
    return run({"train", "translate", "--run", folder_ / "run", "--source", source, "--target", target, "--set",
        "tokenizer=char", "--set", "held_out_pairs=1", "--set", "d_model=16", "--set", "num_heads=2", "--set",
        "d_ff=16", "--set", "max_steps=2"});
  }
  Outcome with(const std::string& setting) const { return train(folder_ / "run", {setting}); }

  const TemporaryFolder folder_;
};

// No test machine has a CUDA module beside its program.
TEST_F(BadInput, Devices) {
  ::setenv("LINNET_CUDA_MODULE", (folder_ / "none.so").c_str(), 1);
  expect_refused(run({"train", "dates", "--device", "cuda", "--run", folder_ / "run"}),
      {"no CUDA module", folder_ / "none.so", "builds for GPUs", "docs/gpu.md"});
  expect_refused(run({"bench", "cnn-128", "--device", "cuda:3"}), {"no CUDA module"});
  ::unsetenv("LINNET_CUDA_MODULE");
  expect_refused(run({"train", "dates", "--device", "gpu"}), {"device = \"gpu\"", "cuda:N"});
  expect_refused(run({"train", "dates", "--set", "precision=tf32"}), {"tf32", "device"});
  expect_refused(run({"bench", "cnn-128", "--precision", "tf32"}), {"--device cuda"});
  expect_refused(run({"train", "dates", "--set", "precision=int8", "--set", "device=cuda"}), {"int8", "CPU"});
}

TEST_F(BadInput, CommandLines) {
  expect_refused(run({"trian", "dates"}), {"no command 'trian'", "did you mean train?"});
  expect_refused(run({"--versoin"}), {"no option '--versoin' (did you mean --version?)"});
  expect_refused(run({"train", "nothere"}), {"no file is called \"nothere\"", "`linnet presets`"});
  expect_refused(run({"embed", "nothere"}), {"there is no folder 'nothere'"});
  std::filesystem::create_directory(folder_ / "encoder");
  folder_.write("encoder/config.json", R"({"model_type": "bert"})");
  expect_refused(run({"translate", folder_ / "encoder"}), {"`linnet info " + (folder_ / "encoder")});
  expect_refused(run({"train"}), {"CONFIG is missing: a TOML file, the name of a preset"});
  expect_refused(run({"train", "--resume", "--run", "runs/a"}), {"`linnet train runs/a --resume` goes on"});
  expect_refused(run({"train", "dates", "--dropout", "0.3"}), {"no option '--dropout'; `--set dropout=VALUE`"});
  EXPECT_EQ(run({"train", "dates", "--xylophone"}).error.find("did you mean"), std::string::npos);
  EXPECT_EQ(run({"xylophone"}).error.find("did you mean"), std::string::npos);
  expect_refused(run({"train", "dates", "--thread", "1"}), {"no option '--thread'", "did you mean --threads?"});
  expect_refused(run({"generate", "x", "--temprature=1"}), {"no option '--temprature' (did you mean --temperature?)"});
  expect_refused(run({"train", "dates", "translate"}), {"nothing to do with 'translate'"});
  expect_refused(run({"trian", "translate"}), {"no command 'trian'", "did you mean train?"});
  expect_refused(run({"train", "dates", "README.md"}), {"nothing to do with 'README.md'; --data README.md"});
  expect_refused(run({"train", "dates", "--run", ""}), {"--run: the value is empty"});
  expect_refused(
      run({"train", "dates", "--steps", "2", "--steps", "3"}), {"linnet: --steps is given more than once ("});
  expect_refused(run({"train", "dates", "--steps"}), {"linnet: --steps needs a value ("});
  expect_refused(run({"train", "dates", "--data", "--run", "x"}), {"linnet: --data needs a value ("});
  expect_refused(run({"train", "dates", "--data", "--resume"}), {"linnet: --data needs a value ("});
  expect_refused(run({"train", "dates", "--data=--resume"}), {"--resume"});
  expect_refused(
      run({"train", "dates", "--set", "metric=f1"}), {"no metric \"f1\"; it has loss, bleu, chrf, exact_match"});
  expect_refused(run({"train", "dates", "--set", "metric=rouge"}), {"no metric \"rouge\"; it has loss, bleu, chrf"});
  expect_refused(run({"train", "dates", "--threads", "many"}), {"--threads", "many"});
  expect_refused(run({"train", "dates", "--threads", "-1"}), {"--threads", "-1", "512"});
  expect_refused(run({"train", "dates", "--threads", "99999999999999999999"}), {"--threads"});
  expect_refused(run({"train", "dates", "--isa", "sse99"}), {"'sse99' is not one of"});
  expect_refused(run({"train", "dates", "--source", "x"}), {"--source and --target go together"});
  expect_refused(run({"score", "m", "pairs.tsv", "--source", "x", "--target", "y"}), {"give either files of pairs"});
  expect_refused(run({"train", "dates", "--set", "d_model"}), {"expected key=value"});
  expect_refused(run({"eval", folder_ / "nothing"}), {"no run folder '" + folder_ / "nothing"});
  expect_refused(run({"eval", folder_.path()}), {"is not a run folder: it has no config.toml"});
  expect_refused(run({"translate", folder_ / "nothing"}), {"no run folder"});
  expect_refused(run({"plan", "dates", "--memory", "3 apples"}), {"\"3 apples\" is not an amount"});
  expect_refused(run({"plan", "dates", "--memory", "2"}), {"memory = \"2\": give a unit, such as 2GB"});
  expect_refused(run({"bench", "cnn-128", "--memory", "2"}), {"--memory 2: give a unit, such as 2GB"});
  expect_refused(run({"bench", "cnn-128", "--model", "m"}), {"--model has no effect on what is measured here"});
  expect_refused(run({"bench", "cnn-128", "--plan", "--profile"}), {"--plan has no effect"});
  expect_refused(run({"bench", "infer", "--dropout", "0"}), {"--dropout has no effect"});
  expect_refused(run({"bench", "--list", "--json"}), {"--list has no --json"});
  for (const auto& [given, refusal] :
      {std::pair<Arguments, const char*>{{"--sweep", "--html", "x.html"}, "--html does not go with --sweep"},
          {{"--network", "25GB/s,5us", "--fusion"}, "--fusion does not go with --network"},
          {{"--json", "--fusion"}, "--fusion does not go with --json"}}) {
    Arguments plan{"plan", "dates"};
    plan.insert(plan.end(), given.begin(), given.end());
    expect_refused(run(plan), {refusal});
  }
  const std::string pairs = folder_.write("pairs.tsv", "a\tb\n");
  for (const char* command : {"info", "embed"})
    expect_refused(run({command, pairs}), {"is neither a run, a model folder nor a file of weights"});
  expect_refused(run({"presets", "datse"}), {"no preset 'datse'"});
  expect_refused(train(folder_ / "run", {}, {"--init", folder_ / "nothing"}), {"no run folder"});
}

TEST_F(BadInput, ConfigurationFiles) {
  expect_refused(run({"train", folder_ / "none.toml"}), {"none.toml", "No such file"});
  expect_refused(run({"train", folder_.path()}), {"is a folder without config.toml"});
  expect_refused(run({"train", "datse"}), {"\"datse\"", "did you mean the preset \"dates\"?"});
  expect_refused(run({"train", folder_.write("a.toml", "d_model = 16\nlearning_rat = 1\n")}),
      {"a.toml:2", "did you mean \"learning_rate\"?"});
  expect_refused(run({"train", folder_.write("b.toml", "[model]\nd_model = \n")}), {"b.toml:2"});
  expect_refused(run({"train", folder_.write("c.toml", "d_model = \"wide\"\n")}), {"c.toml:1", "whole number"});
  expect_refused(run({"train", folder_.write("d.toml", "tokenizer = \"\xff\"\n")}), {"d.toml:1"});
  expect_refused(run({"train", folder_.write("e.toml", "")}), {"no train text: give --data PAIRS.tsv, or --source"});
}

TEST_F(BadInput, FilesThatOnlyAPresetNames) {
  const auto refused = [&](const std::string& preset, const std::string& path, const std::string& part) {
    if (exists(path)) return;  // a developer's machine may have it
    expect_refused(run({"train", preset, "--run", folder_ / "run"}),
        {"the preset \"" + preset + "\" reads '" + path, "', which is not there; " + part});
  };
  refused("shakespeare", "input.txt", "--data FILE names your own");
  refused("mnist", "data/mnist", "--data FOLDER names your own");
  refused("multi30k", "data/multi30k", "--set data.dir=FOLDER");
  refused("sst2", "models/minilm", "--set model.from=FOLDER");
}

TEST_F(BadInput, ImpossibleValuesAreNamedWithTheirFigures) {
  expect_refused(with("learning_rat=1"), {"\"learning_rat\"", "did you mean \"learning_rate\"?"});
  expect_refused(with("num_heads=3"), {"d_model = 16 is not divisible by num_heads = 3"});
  expect_refused(with("d_model=-16"), {"d_model", "-16"});
  expect_refused(with("d_model=0"), {"d_model", "got 0"});
  expect_refused(with("d_model=1.5"), {"d_model", "1.5"});
  expect_refused(with("learning_rate=nan"), {"learning_rate", "nan"});
  expect_refused(with("learning_rate=inf"), {"learning_rate", "inf"});
  expect_refused(with("learning_rate=0"), {"learning_rate"});
  expect_refused(with("dropout=1"), {"dropout", "below 1"});
  expect_refused(with("batch_size=-1"), {"batch_size", "-1"});
  expect_refused(with("max_seq_len=4"), {"200 have more than max_seq_len = 4 tokens"});
  expect_refused(with("threads=1000000"), {"threads", "4096"});
  EXPECT_FALSE(exists(folder_ / "run/config.toml"));
}

// Not "killed", not "out of memory": how much it would take.
TEST_F(BadInput, SizesBeyondMemoryAreRefusedWithTheFigure) {
  expect_refused(with("d_model=1000000000"), {"4.80e+19 bytes"});
  expect_refused(with("d_model=100000"), {" MB, and the machine has "});
  expect_refused(with("d_ff=1000000000"), {" MB, and the machine has "});
  expect_refused(with("max_seq_len=1000000000"), {" MB, and the machine has "});
  expect_refused(with("train_samples=1000000000000"), {"train_samples = 1000000000000", " MB, and the machine has "});
  expect_refused(with("valid_samples=1000000000000"), {"valid_samples = 1000000000000", " MB, and the machine has "});
  expect_refused(run({"train", "reference", "--run", folder_ / "run", "--set", "batch_size=2000", "--set",
                     "train_samples=2000", "--set", "max_seq_len=2048", "--set", "d_model=2048", "--set", "d_ff=8192"}),
      {"this run needs ", " MB at its peak and the machine has ", "linnet plan"});
  const Outcome planned = run({"plan", "reference", "--set", "train_samples=1000000000000"});
  EXPECT_EQ(planned.exit_code, 0) << planned.error;
  EXPECT_NE(planned.out.find("1000000000000 samples were not made"), planned.out.npos) << planned.out;
}

// As under `ulimit -v`: whatever the command has got to, one line says that memory is limited. Far below the least, the
// system's loader ends the process before the program begins.
TEST_F(BadInput, TooLittleAddressSpaceIsOneLine) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers map terabytes of address space";
#endif
  bool began = false;
  for (uint64_t megabytes = 24; megabytes < 60; megabytes += 6) {
    const std::string run_folder = folder_ / ("run" + std::to_string(megabytes));
    const Outcome outcome = run(train_arguments(run_folder, {"threads=32"}), {.address_space = megabytes << 20});
    EXPECT_EQ(outcome.signal, 0) << megabytes << " MiB: " << outcome.error;
    if (outcome.exit_code == 127 || outcome.exit_code == 0) continue;
    expect_refused(outcome, {});
    began = began || outcome.error.find(" MiB (ulimit -v)") != outcome.error.npos;
  }
  EXPECT_TRUE(began);
}

TEST_F(BadInput, Texts) {
  const std::string good = folder_.write("good", "a b\nc d\n");
  expect_refused(train_on(good, folder_.write("short", "x\n")), {"'" + good + "' has 2 lines", "short' has 1 line"});
  expect_refused(train_on(folder_ / "none", good), {"none", "No such file"});
  expect_refused(train_on(folder_.path(), good), {"it is a directory"});
  expect_refused(train_on(folder_.write("empty", ""), good), {"empty' is empty"});
  expect_refused(train_on(good, folder_.write("bad", "x\nab\xC3\x28\n")), {"bad:2: invalid UTF-8 at byte 3", "iconv"});
  expect_refused(train_on(folder_.write("blank", "\n\n"), folder_.write("blank2", "\n\n")), {"training text"});
  expect_refused(
      train_on(folder_.write("one", "a\n"), folder_.write("one2", "b\n")), {"the training text has only one pair"});
  expect_refused(
      train_on(folder_.write("cut.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3\x4b", 11)), good), {"cut.gz", "gzip"});
  const std::string tsv = folder_.write("bad.tsv", "a\tb\nno tab\n");
  expect_refused(run({"train", "translate", "--run", folder_ / "run", "--set", "train_tsv=" + tsv}), {"bad.tsv:2"});
  expect_refused(run({"train", "translate", "--run", folder_ / "run"}), {"--source FILE --target FILE"});
  if (::geteuid() != 0) {  // root reads everything
    ::chmod(good.c_str(), 0);
    expect_refused(train_on(good, good), {"good", "Permission denied"});
  }
}

class BadTokenizer : public BadInput {
 protected:
  // A file of a folder of its own, and what tokenizing with that folder ends with.
  std::string write(const std::string& name, const std::string& bytes) {
    model_ = folder_ / ("model" + std::to_string(++count_));
    ::mkdir(model_.c_str(), 0755);
    return add(name, bytes);
  }
  std::string add(const std::string& name, const std::string& bytes) {
    std::ofstream(model_ + "/" + name, std::ios::binary) << bytes;
    return model_ + "/" + name;
  }
  void add_folder(const std::string& name) { ASSERT_EQ(::mkdir((model_ + "/" + name).c_str(), 0755), 0); }
  Outcome encode(const Arguments& more = {}) const {
    Arguments arguments{"tokenizer", "encode", model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, {.input = "ab a\n"});
  }
  void expect_bad(const std::string& name, const std::string& bytes, const std::vector<std::string>& parts) {
    const std::string path = write(name, bytes);
    std::vector<std::string> all = parts;
    all.push_back(path);
    expect_refused(encode(), all);
  }
  void expect_bad_model(const std::string& model, const std::vector<std::string>& parts) {
    expect_bad("tokenizer.json", "{\"model\":" + model + "}", parts);
  }

  std::string model_;
  int count_ = 0;
};

TEST_F(BadTokenizer, TokenizerJson) {
  const std::string good = R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";
  write("tokenizer.json", good);
  EXPECT_EQ(encode().out, "2 0\n");
  for (const size_t length : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1})
    expect_bad("tokenizer.json", good.substr(0, length), {"is not JSON"});
  expect_bad("tokenizer.json", std::string(200, '[') + std::string(200, ']'), {"nests deeper than 100 levels"});
  expect_bad("tokenizer.json", std::string("{\0\xff}", 4), {"is not JSON"});
  expect_bad("tokenizer.json", "[1]", {"is not an object"});
  expect_bad("tokenizer.json", "{}", {"has no \"model\""});
  expect_bad_model("null", {"\"model\" is not an object"});
  expect_bad_model(R"({"type":7})", {"model \"type\" is not a string"});
  expect_bad_model(R"({"type":"Magic"})", {"Magic"});
  expect_bad_model(R"({"type":"BPE","vocab":[],"merges":[]})", {"\"vocab\" is not an object"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":"0"},"merges":[]})", {"an id that is no integer"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":1e30},"merges":[]})", {"an id that is no integer"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})", {"comes twice: 0"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})", {"out of range", "4000000000"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})", {"out of range", "-1"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":0},"merges":[5]})", {"merge 1 is not two pieces"});
  expect_bad_model(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})", {"merge 1 needs a piece that is not in"});
  const std::string model = R"({"type":"BPE","vocab":{"a":0},"merges":[]})";
  expect_bad_model(model + R"(,"added_tokens":[{"id":4000000000,"content":"x"}])", {"added_tokens[0]", "4000000000"});
  expect_bad_model(model + R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"})",
      {"pre_tokenizer", "'(a' is not understood"});
  expect_bad_model(model + R"(,"normalizer":{"type":"Line\nbreak"})", {"Line break"});
}

// Merges that lead back to where they began, or make a piece in two ways, are no error: each joins two symbols to one.
TEST_F(BadTokenizer, MergesInCirclesEnd) {
  write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ba":3,"aba":4},
                              "merges":["a b","b a","ab a","a ba","a b"]}})");
  const Outcome outcome = encode();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out, "4\n");
}

TEST_F(BadTokenizer, VocabulariesAndMerges) {
  const auto expect_pair = [&](const std::string& vocabulary, const std::string& merges, const std::string& named,
                               const std::string& part) {
    write("vocab.json", vocabulary);
    add("merges.txt", merges);
    expect_refused(encode(), {model_ + "/" + named, part});
  };
  const std::string vocabulary = R"({"a":0,"b":1,"ab":2,"\u0120":3})";
  // Line ends and the mark before the text as Windows has them.
  for (const std::string merges : {"#version: 0.2\r\na b\r\n", "\xEF\xBB\xBF#version: 0.2\na b",
           "\xEF\xBB\xBF"
           "a b"}) {
    write("vocab.json", "\xEF\xBB\xBF" + vocabulary);
    add("merges.txt", merges);
    const Outcome outcome = encode();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(outcome.out, "2 3 0\n");
  }
  expect_pair(vocabulary, "a b\na b c\n", "merges.txt", "line 2: not two pieces and a space");
  expect_pair(vocabulary, "a c\n", "merges.txt", "merge 1 needs a piece");
  expect_pair(vocabulary.substr(0, 9), "a b\n", "vocab.json", "is not JSON");
  expect_pair("[0]", "a b\n", "vocab.json", "\"vocab\" is not an object");
  write("vocab.json", vocabulary);
  expect_refused(encode(), {"has no merges.txt"});
  add_folder("merges.txt");
  expect_refused(encode(), {"merges.txt", "Is a directory"});

  for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
    write("vocab.txt", mark + "[UNK]\r\nab\r\na\r\n");
    EXPECT_EQ(encode().out, "1 2\n");
  }
  expect_bad("vocab.txt", "ab\na\n", {"no unknown token '[UNK]'"});
  expect_bad("vocab.txt", "", {"no unknown token '[UNK]'"});
  expect_bad("vocab.txt", "[UNK]\n\xff\xfe\n", {"line 2: not valid UTF-8"});
}

TEST_F(BadTokenizer, FilesBeside) {
  const auto expect_config = [&](const std::string& name, const std::string& text, const std::string& part) {
    write("vocab.txt", "[UNK]\na\n");
    add(name, text);
    expect_refused(encode(), {model_ + "/" + name, part});
  };
  expect_config("tokenizer_config.json", "{\"cls_token\"", "is not JSON");
  expect_config("tokenizer_config.json", "[]", "is not an object");
  expect_config("tokenizer_config.json", R"({"do_lower_case":"yes"})", "neither true nor false");
  expect_config("tokenizer_config.json", R"({"cls_token":7})", "\"cls_token\" is not a string");
  expect_config("special_tokens_map.json", R"({"pad_token":{"content":7}})", "\"content\" is not a string");
  write("vocab.txt", "[UNK]\na\n");
  add_folder("tokenizer_config.json");
  expect_refused(encode(), {"tokenizer_config.json", "Is a directory"});
}

TEST_F(BadTokenizer, SentencePieceModels) {
  expect_bad("spiece.model", "", {"no SentencePiece model or is damaged"});
  expect_bad("spiece.model", std::string(1000, '\x0a'), {"damaged"});
  expect_bad(
      "tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 791656\n", {"damaged"});
  const std::string piece(
      "\x0a\x05\x0a\x01"
      "a\x18\x01",
      7),
      unknown(
          "\x0a\x05\x0a\x01"
          "?\x18\x02",
          7);
  write("spiece.model", unknown + piece);
  EXPECT_EQ(encode().exit_code, 0);
  expect_bad("spiece.model", unknown + piece + piece, {"piece 2 is there twice"});
  expect_bad("spiece.model", piece, {"0 unknown pieces"});
  expect_bad("spiece.model", (unknown + piece).substr(0, 12), {"it ends too soon"});
  const std::string marian = write("source.spm", unknown + piece);
  add("vocab.json", R"({"a":1,"<unk>":1})");
  expect_refused(encode(), {"vocab.json", "comes twice"});
  add("vocab.json", R"({"a":1})");
  expect_refused(encode(), {"vocab.json", "has no ?"});
}

TEST_F(BadTokenizer, PathsAndStreams) {
  expect_refused(run({"tokenizer", "encode", folder_ / "none"}), {"there is no tokenizer '" + folder_ / "none"});
  model_ = folder_.path();
  expect_refused(encode(), {"holds no tokenizer of a kind that Linnet knows"});
  const std::string path = write("tokenizer.json", "{}");
  if (::geteuid() != 0) {  // root reads everything
    ::chmod(path.c_str(), 0);
    expect_refused(encode(), {path, "Permission denied"});
  }
  write("vocab.txt", "[UNK]\na\n");
  add_folder("tokenizer.json");
  expect_refused(encode(), {"tokenizer.json", "Is a directory"});
  write("vocab.txt", "[UNK]\na\n");
  for (const char* line : {"1 x\n", "99999999999999999999\n", "-1\n", "2\n"})
    expect_refused(run({"tokenizer", "decode", model_}, {.input = line}), {"standard input: line 1"});
}

// What `train` refuses is no text to learn a vocabulary from, either.
TEST_F(BadTokenizer, TrainingTakesTextOnly) {
  const std::string made = folder_ / "made";
  const auto learn = [&](const std::string& file) { return run({"tokenizer", "train", made, file}); };
  expect_refused(learn(folder_.write("utf16.txt", std::string("\xFF\xFEh\0i\0", 6))), {"utf16.txt:1", "UTF-16"});
  expect_refused(learn(folder_.write("latin1.txt", "caf\xE9\n")), {"latin1.txt:1", "invalid UTF-8 at byte 4"});
  expect_refused(learn(folder_.write("nul.txt", std::string("a\0b\n", 4))), {"nul.txt:1", "NUL byte"});
  expect_refused(learn(folder_.write("cut.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3\x4b", 11))), {"cut.gz", "gzip"});
  expect_refused(
      learn(folder_.write("a.csv", "title,body\na,b\n")), {"a.csv:2", "no string \"text\"", "--text-column"});
  expect_refused(learn(folder_.write("empty.txt", "")), {"empty.txt' is empty"});
  const std::string line = "{\"body\": \"cat cat cat cat\"}\n";
  const std::string records = folder_.write("a.jsonl", line + line + line);
  const Outcome learned = run({"tokenizer", "train", made, records, "--text-column", "body"});
  ASSERT_EQ(learned.exit_code, 0) << learned.error;
  EXPECT_NE(learned.out.find(" tokens; the text gives no more\n"), learned.out.npos) << learned.out;  // fewer than 8000
  EXPECT_EQ(run({"tokenizer", "encode", made, "--tokens"}, {.input = "{\"cat\"\n"}).out, "{ \" cat \"\n");
}

class BadRun : public BadInput {
 protected:
  void SetUp() override { ASSERT_EQ(train(whole_).exit_code, 0); }
  // A copy of the run with one file spoilt.
  std::string spoil(const std::string& name, const std::string& text) {
    copy_folder(whole_, run_);
    folder_.write("run/" + name, text);
    return text;
  }
  std::string half(const std::string& name) const {
    const std::string text = contents(whole_ + "/" + name);
    return text.substr(0, text.size() / 2);
  }
  std::string flipped(const std::string& name) const {
    std::string text = contents(whole_ + "/" + name);
    text[text.size() * 3 / 4] = static_cast<char>(text[text.size() * 3 / 4] ^ 0x55);
    return text;
  }
  Outcome eval() const { return run({"eval", run_}); }
  Outcome resume() const { return train(run_, {"max_steps=30"}, {"--resume"}); }

  const std::string whole_ = folder_ / "whole", run_ = folder_ / "run";
};

TEST_F(BadRun, DamagedModelsAreRefused) {
  for (const std::string& text :
      {half("model.safetensors"), flipped("model.safetensors"), std::string(), std::string(100, '\xff')}) {
    spoil("model.safetensors", text);
    expect_refused(eval(), {"model.safetensors"});
    expect_refused(run({"translate", run_}), {"model.safetensors"});
    EXPECT_EQ(contents(run_ + "/model.safetensors"), text);
  }
  ::unlink((run_ + "/model.safetensors").c_str());
  expect_refused(eval(), {"has no model.safetensors yet"});
}

TEST_F(BadRun, DamagedTrainingStatesAreRefusedAndNothingIsLost) {
  for (const std::string& text : {half("training_state.safetensors"), flipped("training_state.safetensors"),
           std::string(), contents(whole_ + "/model.safetensors")}) {
    spoil("training_state.safetensors", text);
    expect_refused(resume(), {"training_state.safetensors"});
    EXPECT_EQ(contents(run_ + "/training_state.safetensors"), text);
    EXPECT_EQ(contents(run_ + "/metrics.jsonl"), contents(whole_ + "/metrics.jsonl"));
    EXPECT_EQ(contents(run_ + "/model.safetensors"), contents(whole_ + "/model.safetensors"));
    EXPECT_EQ(contents(run_ + "/config.toml") == contents(whole_ + "/config.toml"), true);
  }
}

TEST_F(BadRun, DamagedTokenizersAndConfigurationsAreRefused) {
  for (const char* name : {"source.char", "target.char"})
    for (const std::string& text : {half(name), flipped(name), std::string()}) {
      spoil(name, text);
      expect_refused(eval(), {name});
      expect_refused(resume(), {name});
      EXPECT_EQ(contents(run_ + "/" + name), text);
    }
  const std::string config = contents(run_ + "/config.toml");
  spoil("config.toml", config.substr(0, config.find('"') + 1));  // within a value: half a file may be whole lines
  expect_refused(eval(), {"config.toml:"});
  expect_refused(resume(), {"config.toml:"});
  spoil("config.toml", "");
  expect_refused(eval(), {});
  expect_refused(resume(), {"--resume cannot change"});
}

// A line of the log that no program can read costs that line, not all that follow it.
TEST_F(BadRun, ADamagedLineOfMetricsDoesNotTakeTheOthersWithIt) {
  const std::string metrics = contents(whole_ + "/metrics.jsonl");
  std::string damaged = metrics;
  damaged[metrics.find("\"step\":7")] = '\x01';
  spoil("metrics.jsonl", damaged + "{\"step\":21,\"spl");  // and one that a crash cut short
  ASSERT_EQ(resume().exit_code, 0);
  const std::string after = contents(run_ + "/metrics.jsonl");
  EXPECT_EQ(after.substr(0, damaged.size()), damaged);
  EXPECT_EQ(lines(after).size(), lines(metrics).size() + 11);  // ten steps and an evaluation
}

TEST_F(BadRun, FilesOfAnotherRunAreRefused) {
  ASSERT_EQ(train(folder_ / "other", {"d_model=32", "num_encoder_layers=2"}).exit_code, 0);
  spoil("model.safetensors", contents(folder_ / "other/model.safetensors"));
  expect_refused(eval(), {"model.safetensors: tensor ", "expected f32"});
  spoil("training_state.safetensors", contents(folder_ / "other/training_state.safetensors"));
  expect_refused(resume(), {"training_state.safetensors: tensor ", "expected f32"});
  spoil("config.toml", contents(folder_ / "other/config.toml"));
  expect_refused(eval(), {"model.safetensors"});
  expect_refused(run({"translate", run_}), {"model.safetensors"});
  expect_refused(resume(), {"made with another configuration", "d_model", "num_encoder_layers"});
  std::string config = contents(whole_ + "/config.toml");
  spoil("config.toml", config.replace(config.find("num_heads = 2"), 13, "num_heads = 3"));
  expect_refused(eval(), {"config.toml", "num_heads = 3"});
  config = contents(whole_ + "/config.toml");
  spoil("config.toml", config.replace(config.find("max_seq_len = 48"), 16, "max_seq_len = 1000000000"));
  expect_refused(eval(), {" MB"});
  expect_refused(run({"translate", run_}), {" MB"});
  spoil("source.char", contents(whole_ + "/target.char"));
  expect_refused(eval(), {"model.safetensors: tensor source_embedding.weight", "expected f32"});
}

TEST_F(BadRun, FoldersThatCannotBeWrittenAreRefused) {
  const std::string file = folder_.write("file", "keep");
  expect_refused(train(file), {"cannot make the folder '" + file});
  expect_refused(train(file + "/run"), {"cannot make the folder '" + file + "/run"});
  EXPECT_EQ(contents(file), "keep");
  expect_refused(train("/proc/self/run"), {"cannot make the folder '/proc/self/run"});
  expect_refused(train("/sys/kernel"), {"/sys/kernel"});  // it exists, and takes no files
  copy_folder(whole_, run_);
  ::unlink((run_ + "/metrics.jsonl").c_str());
  ASSERT_EQ(::mkdir((run_ + "/metrics.jsonl").c_str(), 0755), 0);
  expect_refused(resume(), {"metrics.jsonl", "Is a directory"});
}

TEST_F(BadRun, AFullLogStopsTheRunAndKeepsTheCheckpoint) {
  copy_folder(whole_, run_);
  ::unlink((run_ + "/metrics.jsonl").c_str());
  ASSERT_EQ(::symlink("/dev/full", (run_ + "/metrics.jsonl").c_str()), 0);
  expect_refused(resume(), {"metrics.jsonl", "No space left on device"});
  EXPECT_EQ(contents(run_ + "/training_state.safetensors"), contents(whole_ + "/training_state.safetensors"));
}

// A file system of one megabyte, where the process may make one.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path, const char* size) : path_(path) {
    ::mkdir(path.c_str(), 0755);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, size) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool make_read_only() const { return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0; }

 private:
  std::string path_;
  bool mounted_;
};

TEST_F(BadRun, AFullDiskIsFoundBeforeTrainingAndLosesNothing) {
  const std::string path = folder_ / "disk";
  const SmallDisk disk(path, "size=4m");
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  expect_refused(
      train(path + "/run", {"d_model=256", "d_ff=1024"}), {"needs ", " MB for its checkpoints, and its disk has "});
  copy_folder(whole_, path + "/run");
  std::ofstream(path + "/filler") << std::string(8'000'000, 'x');  // as much as there is room for
  const Outcome outcome = train(path + "/run", {"max_steps=30"}, {"--resume"});
  expect_refused(outcome, {path + "/run"});
  for (const char* name :
      {"training_state.safetensors", "model.safetensors", "metrics.jsonl", "config.toml", "source.char"})
    EXPECT_EQ(contents(path + "/run/" + name), contents(whole_ + "/" + name)) << name;
  ::unlink((path + "/filler").c_str());
  EXPECT_EQ(train(path + "/run", {"max_steps=30"}, {"--resume"}).exit_code, 0);
}

TEST_F(BadInput, AModelThatADiskHasNoRoomForLeavesNothingThere) {
  const std::string path = folder_ / "disk", out = path + "/out", model = std::string(LINNET_GOLDEN) + "/bert_model";
  const SmallDisk disk(path, "size=32k");  // the weights have as many bytes, and a header
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  std::string texts;
  for (int i = 0; i < 10; ++i) texts += "the dog sat " + std::to_string(i) + "\n";
  const std::string text = folder_.write("text.txt", texts);
  const Arguments commands[] = {{"quantize", model, "--calibrate", text, "-o", out}, {"convert", model, out}};
  for (const Arguments& arguments : commands) {
    expect_refused(run(arguments), {out, " needs 0.0 MB, and its disk has 0.0 MB free"});
    EXPECT_FALSE(exists(out)) << arguments.front();
  }
}

// The files that a resumed run replaces are not counted twice.
TEST_F(BadRun, ADiskWithRoomForARunHasRoomToResumeIt) {
  const std::string path = folder_ / "disk";
  const SmallDisk disk(path, "size=4m");
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  ASSERT_EQ(train(path + "/run", {"d_model=72"}).exit_code, 0);
  const Outcome resumed = train(path + "/run", {"d_model=72", "max_steps=30"}, {"--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.error;
}

TEST_F(BadRun, ADiskThatFillsUpWhileTrainingStopsTheRunWhichGoesOnOnceThereIsRoom) {
  const std::string path = folder_ / "disk", run_folder = path + "/run";
  const SmallDisk disk(path, "size=4m");
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  const Arguments endless{"max_steps=1000000", "eval_every=200", "save_every=20", "d_model=48"},
      longer{"max_steps=800", "eval_every=200", "save_every=20", "d_model=48"};
  Program program(train_arguments(run_folder, endless));
  while (program.running() && read_metrics(run_folder).size() < 50) ::usleep(1000);
  std::ofstream(path + "/filler") << std::string(8'000'000, 'x');
  expect_stopped(program.wait(), {run_folder, "No space left on device", "--resume goes on from step "});
  ::unlink((path + "/filler").c_str());
  ASSERT_LT(read_metrics(run_folder).size(), 800u);
  ASSERT_EQ(train(run_folder, longer, {"--resume"}).exit_code, 0);
  ASSERT_EQ(train(folder_ / "undisturbed", longer).exit_code, 0);
  EXPECT_EQ(read_metrics(run_folder), read_metrics(folder_ / "undisturbed"));
}

TEST_F(BadRun, AReadOnlyDiskIsAnError) {
  const std::string path = folder_ / "disk";
  const SmallDisk disk(path, "size=4m");
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  copy_folder(whole_, path + "/run");
  ASSERT_TRUE(disk.make_read_only());
  expect_refused(train(path + "/run", {}, {"--resume"}), {path + "/run", "Read-only file system"});
  expect_refused(train(path + "/new"), {path + "/new", "Read-only file system"});
  EXPECT_EQ(run({"eval", path + "/run"}).exit_code, 0);  // reading is enough for that
}
}  // namespace
}  // namespace linnet::testing
