#include <fcntl.h>
#include <sentencepiece_trainer.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "data/text/trained_tokenizers.h"

namespace linnet {
namespace {
// Unigram's expected counts are summed per thread, so the vocabulary depends on the number of threads, which is fixed.
constexpr const char* kTrainerThreads = "4";
// More lines do not improve a vocabulary; SentencePiece then samples this many.
constexpr size_t kMaxLines = 5'000'000;

// SentencePiece computes multiples of the size in 31 bits, and loops forever on overflow.
constexpr int64_t kMaxVocabulary = 10'000'000;

// The first byte that the child sends.
constexpr char kModelFollows = 'M', kMessageFollows = 'E';

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t next_ = 0;
};

std::unordered_map<std::string, std::string> trainer_arguments(const TokenizerOptions& options, size_t lines) {
  const SpecialTokens& ids = options.special;
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.model_type},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", shortest(options.character_coverage)},
      {"pad_id", std::to_string(ids.pad)},
      {"unk_id", std::to_string(ids.unknown)},
      {"bos_id", std::to_string(ids.begin)},
      {"eos_id", std::to_string(ids.end)},
      {"normalization_rule_name", "nmt_nfkc"},
      {"max_sentence_length", "65536"},  // bytes; longer lines are left out
      {"num_threads", kTrainerThreads},
      {"minloglevel", "1"},
  };
  if (lines > kMaxLines) {
    arguments["input_sentence_size"] = std::to_string(kMaxLines);
    arguments["shuffle_input_sentence"] = "true";
  }
  return arguments;
}

// The child: never returns, and runs none of the parent's destructors or exit handlers.
[[noreturn]] void train_in_child(
    const TokenizerOptions& options, const std::vector<std::string>& lines, pid_t parent, int result, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    ::signal(signal, SIG_DFL);  // the parent's handlers only set a flag
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  std::string model, message;
  try {
    sentencepiece::SetRandomGeneratorSeed(static_cast<unsigned>(options.seed));
    Lines iterator(lines);
    const auto status =
        sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options, lines.size()), &iterator, &model);
    if (!status.ok()) message = status.ToString();
  } catch (const std::exception& error) {
    message = error.what();
  }
  const bool failed = !message.empty() || model.empty();
  const std::string answer = (failed ? kMessageFollows : kModelFollows) + (failed ? message : model);
  ::_exit(write_all(result, answer.data(), answer.size()) ? 0 : 1);  // 1: the parent is gone
}

// The digits that follow `words` in `text`, or "".
std::string number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == text.npos) return "";
  const size_t begin = at + words.size();
  return text.substr(begin, std::min(text.find_first_not_of("0123456789", begin), text.size()) - begin);
}

// Rephrases known messages of SentencePiece.
[[noreturn]] void fail_training(const TokenizerOptions& options, std::string message) {
  const std::string wanted = "vocab_size " + std::to_string(options.vocab_size);
  const std::string least = number_after(message, " vs ");
  if (message.find("smaller than required_chars") != message.npos && !least.empty())
    fail_user(wanted, " is too small for the training text; its characters and the special tokens need ", least,
        " (or lower character_coverage)");
  while (!message.empty() && std::isspace(static_cast<unsigned char>(message.back()))) message.pop_back();
  message.erase(0, message.rfind('\n') + 1);
  fail_user("SentencePiece cannot train a tokenizer: ", message.empty() ? "no reason given" : message);
}

void check_options(const TokenizerOptions& options, const std::vector<std::string>& lines) {
  if (options.model_type != "bpe" && options.model_type != "unigram")
    fail_user("unknown SentencePiece model '", options.model_type, "' (bpe or unigram)");
  if (options.vocab_size <= kSpecialTokenCount || options.vocab_size > kMaxVocabulary)
    fail_user("vocab_size is ", options.vocab_size, "; it must exceed the ", kSpecialTokenCount,
        " special tokens and be at most ", kMaxVocabulary);
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1))
    fail_user("character_coverage is ", options.character_coverage, "; it must lie in 0.98..1");
  if (std::ranges::all_of(lines, [](const std::string& line) { return trimmed(line, " \t\r\n").empty(); }))
    fail_user("the training text has nothing to make a vocabulary of");
}
}  // namespace

std::string train_sentencepiece(const TokenizerOptions& options, const std::vector<std::string>& lines) {
  check_options(options, lines);
  int ends[2];
  const Descriptor output(::memfd_create("sentencepiece", MFD_CLOEXEC));
  if (!output.open() || ::pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot start the tokenizer's training");
  const Descriptor result(ends[0]);
  Descriptor sent(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) train_in_child(options, lines, parent, sent.get(), output.get());
  if (child < 0) fail_errno("cannot start the tokenizer's training");
  sent.close();
  std::string answer, printed;
  int status = 0;
  std::optional<TimedPhase> phase(std::in_place, "learning the vocabulary");
  read_to_end(result.get(), answer);
  phase.reset();
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ::lseek(output.get(), 0, SEEK_SET);
  read_to_end(output.get(), printed);
  if (WIFSIGNALED(status)) {
    fail_system("training the tokenizer was stopped by signal " + std::to_string(WTERMSIG(status)) + " (" +
                ::strsignal(WTERMSIG(status)) + ")");
  }
  if (answer.size() > 1 && answer[0] == kModelFollows) return answer.substr(1);
  const std::string message = answer.size() > 1 ? answer.substr(1) : printed;
  const std::string most = number_after(message, "Please set it to a value <= ");
  if (most.empty()) fail_training(options, message);
  TokenizerOptions smaller = options;
  smaller.vocab_size = std::stoll(most);
  if (smaller.vocab_size >= options.vocab_size) fail_training(options, message);
  log_warning("the training text holds a vocabulary of " + most + ", which is taken instead of vocab_size " +
              std::to_string(options.vocab_size));
  return train_sentencepiece(smaller, lines);
}

std::unique_ptr<Tokenizer> train_tokenizer(const TokenizerOptions& options, const std::vector<std::string>& lines) {
  if (options.kind == "char") return train_vocabulary(TextUnit::kCharacter, options.vocab_size, lines);
  if (options.kind == "word") return train_vocabulary(TextUnit::kWord, options.vocab_size, lines);
  if (options.kind == "sentencepiece")
    return make_sentencepiece_tokenizer(train_sentencepiece(options, lines), "(just trained)");
  if (options.kind == "byte_bpe") fail_user("tokenizer = \"byte_bpe\" is for language models alone");
  fail_user("unknown tokenizer '", options.kind, "' (char, word or sentencepiece)");
}
}  // namespace linnet
