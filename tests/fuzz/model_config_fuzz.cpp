// Any bytes are either the config.json of a model of any family (and as well its generation_config.json), or a user
// error of one line: what open_pretrained() makes of it, up to comparing the tensors' shapes with a file's.
#include <unistd.h>
#include <filesystem>
#include "base/files.h"
#include "fuzz/fuzzing.h"
#include "models/families/binding.h"
#include "models/families/generation_config.h"
#include "models/families/pretrained.h"

using namespace linnet;

namespace {
// config.json goes where the weights of one of its family lie.
std::string make_folders() {
  const std::string folder = "/dev/shm/linnet_fuzz_" + std::to_string(::getpid());
  for (const char* name : {"gpt2", "llama", "bert_model", "t5", "marian"}) {
    const std::string location = folder + "/" + std::string(name, std::strcspn(name, "_"));
    std::filesystem::create_directories(location);
    const std::string weights = "tests/golden/pretrained/" + std::string(name) + "/model.safetensors";
    if (file_exists(weights)) write_file_atomically(location + "/model.safetensors", read_file(weights));
  }
  return folder;
}

void write(const std::string& path, const std::string& bytes) {
  if (std::FILE* file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string root = make_folders();
  const std::string bytes = fuzzing::as_text(data, size);
  std::string folder;
  fuzzing::only_user_errors([&] {
    const ConfigFile config = ConfigFile::parse(bytes, fuzzing::kName);
    fuzzing::require(ConfigFile::parse(config.dump(), "printed").dump() == config.dump());
    const PretrainedModel model = new_pretrained(config);
    const ParameterLayout layout(*model.module);
    bind_names(model.names, layout);
    folder = root + "/" + model.family->model_type;
  });
  if (folder.empty()) folder = root;
  write(folder + "/config.json", bytes);
  fuzzing::only_user_errors([&] { read_generation_config(folder); });
  if (folder != root) fuzzing::only_user_errors([&] { open_pretrained(folder); });
  return 0;
}
