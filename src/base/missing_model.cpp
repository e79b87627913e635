#include "base/missing_model.h"

#include <algorithm>
#include <string_view>

#include "base/files.h"

namespace linnet {
namespace {

// "org/name", of the characters that the Hub allows.
bool is_hub_name(std::string_view path) {
  const size_t slash = path.find('/');
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  const auto is_part = [&](std::string_view part) {
    return !part.empty() && part[0] != '.' && std::ranges::all_of(part, is_allowed);
  };
  return slash != path.npos && is_part(path.substr(0, slash)) && is_part(path.substr(slash + 1));
}

}  // namespace

std::string missing_model_hint(const std::string& path) {
  if (path.ends_with(".gguf"))
    return "; GGUF files of llama.cpp are not read: take the folder with config.json and model.safetensors that the file "
           "was made from";
  if (path.ends_with(".bin") || path.ends_with(".pt") || path.ends_with(".pth"))
    return "; PyTorch's weights are not read: transformers' save_pretrained() writes a folder with model.safetensors";
  // A folder beside others, such as "runs/a", is rather a run that is not there.
  const std::string parent = path.substr(0, path.find('/'));
  if (!file_exists(path) && is_hub_name(path) && !file_exists(parent))
    return "; if that is a name on the Hugging Face Hub, download it first: `hf download " + path + " --local-dir " +
           path.substr(path.find('/') + 1) + "`";
  return "";
}

}  // namespace linnet
