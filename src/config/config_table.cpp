// Every key of a configuration: what it means, its choices or range, and whom it concerns.
#include <algorithm>
#include <utility>
#include "config/config.h"
#include "config/config_keys.h"

namespace linnet {
namespace {

// The address of one member of one section, as the table stores it.
template <auto Section, auto Member>
FieldPointer field(Config& config) {
  return &(config.*Section.*Member);
}
#define MODEL(member) "model", #member, field<&Config::model, &ModelConfig::member>
#define DATA(member) "data", #member, field<&Config::data, &DataConfig::member>
#define LORA(member) "lora", #member, field<&Config::lora, &LoraConfig::member>
#define EMBEDDINGS(member) "embeddings", #member, field<&Config::embeddings, &EmbeddingsConfig::member>
#define ANSWERS(member) "answers", #member, field<&Config::answers, &AnswersConfig::member>
#define PREFERENCES(member) "preferences", #member, field<&Config::preferences, &PreferenceConfig::member>
#define DISTILLATION(member) "distillation", #member, field<&Config::distillation, &DistillationConfig::member>
#define TRAIN(member) "train", #member, field<&Config::train, &TrainConfig::member>

ConfigKey any(const char* section, const char* name, FieldPointer (*field)(Config&), const char* meaning) {
  return {section, name, field, meaning};
}

ConfigKey one_of(const char* section, const char* name, FieldPointer (*field)(Config&), const char* meaning,
                 std::vector<std::string> choices) {
  ConfigKey key = any(section, name, field, meaning);
  key.choices = std::move(choices);
  return key;
}

ConfigKey between(const char* section, const char* name, FieldPointer (*field)(Config&), const char* meaning,
                  double least, double most) {
  ConfigKey key = any(section, name, field, meaning);
  key.least = least;
  key.most = most;
  return key;
}

// From `least` on, but less than `limit`.
ConfigKey below(const char* section, const char* name, FieldPointer (*field)(Config&), const char* meaning,
                double least, double limit) {
  ConfigKey key = between(section, name, field, meaning, least, limit);
  key.below_most = true;
  return key;
}

ConfigKey resumable(ConfigKey key) {
  key.may_change_on_resume = true;
  return key;
}

// The key means something to these architectures and tasks alone.
ConfigKey of(std::vector<const char*> owners, ConfigKey key) {
  key.owners = std::move(owners);
  return key;
}

// Owners that several keys share.
const std::vector<const char*> kPairs{"transformer", "t5", "marian"}, kTexts{"language", "masked_language"},
    kTokens{"transformer", "t5", "marian", "gpt", "llama", "bert"},
    kLayers{"transformer", "t5", "marian", "gpt", "llama", "bert", "vit"}, kTaught{"language", "classification"},
    kAdapted{"transformer", "t5", "marian", "gpt", "llama", "bert"}, kGenerated{"dates", "random"};

constexpr double kMaxSize = 1 << 30;             // of one axis of a tensor
constexpr double kMaxLayers = 1000;              // of either stack
constexpr double kMaxCount = 1e15;               // of steps, samples: exact in a double
constexpr double kMaxSeed = 9007199254740992.0;  // 2^53
constexpr double kMaxReal = 1e30;                // far from overflow in float

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskRow& task : task_rows()) names.emplace_back(task.name);
  return names;
}

// Of all tasks, each once.
std::vector<std::string> metric_names() {
  std::vector<std::string> names{"loss"};
  for (const TaskRow& task : task_rows())
    for (const std::string_view metric : task.metrics)
      if (std::ranges::count(names, metric) == 0) names.emplace_back(metric);
  return names;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = {
      one_of(MODEL(architecture),
             "An encoder-decoder Transformer for translation (in the layout of T5 or Marian, too), a convolutional "
             "or residual network or a vision Transformer (vit) for task = \"images\", a decoder "
             "of GPT-2's or Llama's kind for task = \"language\", a BERT for task = \"masked_language\" and "
             "those on texts with labels.",
             {"transformer", "cnn", "resnet", "vit", "gpt", "llama", "bert", "t5", "marian"}),
      of({"transformer", "t5", "marian", "gpt", "llama", "bert", "images"},
         any(MODEL(from),
             "A model folder in the layout of Hugging Face to start from: its configuration takes the place of the "
             "keys "
             "below, its tokenizer that of the tokenizer keys. For task = \"images\" an ONNX file or the folder of an "
             "imported one or the .safetensors of a residual network (torchvision's, timm's, an export), in place of "
             "the "
             "architecture, or the model folder of a vit; for task = \"classification\" "
             "also an ONNX file with a "
             "tokenizer beside it.")),
      of(kLayers,
         between(MODEL(d_model), "Width of the model: the features of a token. Even, and divisible by num_heads.", 2,
                 kMaxSize)),
      of(kLayers, between(MODEL(num_heads), "Attention heads; each has d_model / num_heads features.", 1, kMaxSize)),
      of({"transformer", "t5", "marian", "bert", "vit"},
         between(MODEL(num_encoder_layers),
                 "Encoder layers. The key num_layers sets both stacks. 0, of a bert: its embeddings alone, of which a "
                 "classifier of texts takes the mean.",
                 0, kMaxLayers)),
      of({"transformer", "t5", "marian", "gpt", "llama"},
         between(MODEL(num_decoder_layers), "Decoder layers.", 0, kMaxLayers)),
      of(kLayers, between(MODEL(d_ff), "Width of the feed-forward layers.", 1, kMaxSize)),
      of(kTokens,
         between(MODEL(max_seq_len),
                 "Most tokens of a sentence, its begin and end included. Longer pairs are left out of training.", 4,
                 kMaxSize)),
      of(kLayers, below(MODEL(dropout), "Share of activations dropped in training.", 0, 1)),
      of({"transformer", "marian"},
         one_of(MODEL(norm),
                "Layer norm after each sub-layer, as in the paper, or before it, which trains more easily.",
                {"post", "pre"})),
      of({"transformer", "marian"},
         any(MODEL(final_norm), "One more layer norm at the end of each stack; advisable when norm is \"pre\".")),
      of({"transformer", "t5", "marian", "bert", "vit"},
         one_of(MODEL(activation), "Of the feed-forward layers.", {"relu", "gelu"})),
      of(kPairs, any(MODEL(share_embeddings), "One embedding table for source and target. Needs joint_vocab.")),
      of({"transformer", "t5", "marian", "llama"},
         any(MODEL(tie_head), "The output layer uses the target embedding's weights; a gpt's always does.")),
      of({"cnn"}, between(MODEL(filters), "Of the convolutional network: channels of its convolution.", 1, kMaxSize)),
      of({"resnet"},
         between(MODEL(depth),
                 "Of the residual network: 18, 34, 50, 101 or 152 as for large images; 20, 32, 44, 56 (6 n + 2) as for "
                 "small ones.",
                 8, 1202)),
      of({"vit"}, between(MODEL(patch_size),
                          "Of the vision Transformer: side of the squares in pixels that an image is cut into, each of "
                          "which is a token. It divides the image's height and width.",
                          1, 4096)),

      one_of(
          DATA(task),
          "\"text\" reads sentences and their translations, \"images\" reads images to classify, \"language\" reads "
          "text to predict token by token, \"chat\" conversations, \"preferences\" pairs of a better and a worse "
          "answer, "
          "\"masked_language\" the same text to find masked "
          "tokens again, "
          "\"classification\", \"several_labels\" and \"regression\" read texts, or pairs of them, with a class, any "
          "number of labels, or numbers (the TSV keys), \"token_classification\" texts with tagged words, "
          "\"images\", \"images_several_labels\" and \"images_regression\" the same of images, \"embeddings\" pairs or "
          "triplets of texts, \"answers\" questions whose answers are in a text; \"dates\" "
          "generates dates to translate, \"random\" noise to measure with.",
          task_names()),
      of({"text", "images", "language", "masked_language", "texts"},
         any(DATA(data_dir), "Folder in front of the relative paths below; the folder of the images.")),
      of({"text"}, any(DATA(train_source), "Training text, one sentence a line, UTF-8, plain or gzip ...")),
      of({"text"}, any(DATA(train_target), "... and its translation, line by line.")),
      of({"text"}, any(DATA(source_language),
                       "Language of the source, for a model of many languages, as its tokenizer spells it: eng_Latn, "
                       "en_XX, en; default: what the model folder says.")),
      of({"text"}, any(DATA(target_language), "Language of its translation.")),
      of({"text"}, any(DATA(valid_source), "Validation text, for choosing the best checkpoint.")),
      of({"text"}, any(DATA(valid_target), "Its translation.")),
      of({"text"}, any(DATA(test_source), "Test text, for `linnet eval` only.")),
      of({"text"}, any(DATA(test_target), "Its translation.")),
      of({"text", "texts", "images"},
         any(DATA(train_tsv),
             "Instead of two files: one, with source, tab, target on each line. Of labelled texts: a table of tabs or "
             "commas (.csv), or JSON lines (.jsonl). Of images: such a table of files, which lie relative to it, and "
             "labels.")),
      of({"text", "texts", "images"}, any(DATA(valid_tsv), "The same for validation.")),
      of({"text", "texts", "images"}, any(DATA(test_tsv), "The same for the test.")),
      of({"texts", "text", "language", "masked_language", "chat", "images"},
         any(DATA(text_column),
             "The field with the text; empty: the usual names, else the first. Of translations the source, of images "
             "the file.")),
      of({"texts"}, any(DATA(pair_column), "The field with the second text of a pair; empty: the usual names.")),
      of({"texts", "text", "images"},
         any(DATA(label_column),
             "The field with the label; empty: the usual names, else the last. Of translations the "
             "target.")),
      of(kTexts, any(DATA(text),
                     "Of language models, masked ones too: the training text, a file of plain text, of JSON lines "
                     "(.jsonl) each "
                     "with a "
                     "\"text\", "
                     "or of token numbers (.bin).")),
      of(kTexts,
         any(DATA(valid_text), "Validation text of the same kind. Without it, the end of the training text is taken:")),
      of(kTexts, below(DATA(valid_share), "this share of it.", 0, 0.95)),
      of(kTexts, any(DATA(test_text), "Test text, for `linnet eval` only.")),
      of(kTexts, between(DATA(token_bytes), "Bytes of a number in a .bin file: 2 or 4.", 2, 4)),
      of({"language", "masked_language", "texts"},
         between(DATA(context), "Tokens of a chunk of text; 0: the model's max_seq_len.", 0, kMaxSize)),
      of({"text", "images", "texts"},
         below(DATA(held_out),
               "Share of the training examples set aside for validation when no validation examples are given; of "
               "folders of images without a test part as many again for the test. Never more than half.",
               0.0001, 0.5)),
      of({"text"}, between(DATA(held_out_pairs), "So many training pairs instead; 0: `held_out` of them, 500 at most.",
                           0, kMaxCount)),
      of({"images"},
         between(DATA(held_out_images), "So many training images instead; 0: `held_out` of them.", 0, kMaxCount)),
      of({"images"},
         between(DATA(image_size),
                 "Pixels that either side of an image is resized to; 0: images are taken as they are, all of one size.",
                 0, 4096)),
      of({"images"},
         one_of(DATA(image_fit),
                "How images become of that size: scaled and the middle kept, or both sides scaled by themselves.",
                {"crop", "stretch"})),
      of({"images"},
         resumable(any(DATA(image_memory),
                       "The most memory that decoded images may take, such as 4GiB. Image files that need more are "
                       "decoded anew for every batch. The bits are the same."))),
      of({"images"},
         resumable(between(DATA(image_threads),
                           "Threads that decode and change images while a step is computed; 0: as many as `threads`. "
                           "The bits are the same.",
                           0, 4096))),
      of({"images"}, between(DATA(augment_shift),
                             "Training images are shifted by up to so many pixels in either direction.", 0, 4096)),
      of({"images"}, any(DATA(augment_mirror), "Left and right are exchanged in every second training image.")),
      of({"images"}, between(DATA(augment_cutout),
                             "Side of a square, somewhere in each training image, that is covered; 0: none.", 0, 4096)),
      of({"images"},
         between(DATA(augment_rotate),
                 "Training images are rotated about their center by up to so many degrees either way.", 0, 180)),
      of({"images"},
         between(
             DATA(augment_crop),
             "A part of at least this share of each training image, with sides of 3:4 to 4:3, is cut out and scaled to "
             "the whole, such as 0.35; 0: none.",
             0, 1)),
      of({"images"},
         between(DATA(augment_random),
                 "RandAugment: so many changes of each training image, drawn from fourteen; 0: none.", 0, 14)),
      of({"images"}, between(DATA(augment_strength), "How strong the changes of augment_random are, of 30.", 0, 30)),
      of({"images"},
         between(
             DATA(augment_cutmix),
             "CutMix: a rectangle of another image is pasted into each training image, by a share from Beta(a, a) with "
             "this a, which has both labels by area; 0: none. Where augment_mixup is set too, chance decides for each "
             "image.",
             0, 1000)),
      of({"images"},
         between(DATA(augment_mixup),
                 "Mixup: each training image is blended with another one, by a share from Beta(a, a) with this a, and "
                 "has both labels by that share; 0: none.",
                 0, 1000)),
      of(kGenerated, between(DATA(train_samples), "Examples of an epoch of a generated task.", 1, kMaxCount)),
      of(kGenerated, between(DATA(valid_samples), "Validation examples of a generated task.", 1, kMaxCount)),
      of(kGenerated, between(DATA(test_samples), "Test examples of a generated task.", 1, kMaxCount)),
      of({"transformer", "t5", "marian", "language"},
         one_of(DATA(tokenizer),
                "What a token is: a learned piece of a word, a character, a word; of a language model: byte_bpe, bytes "
                "joined "
                "to pieces as GPT-2 does, or char.",
                {"sentencepiece", "char", "word", "byte_bpe"})),
      of({"language", "masked_language", "texts"},
         any(DATA(tokenizer_dir),
             "Instead of one that is learned of the training texts: a tokenizer that is there already: tokenizer.json, "
             "vocab.txt or the folder "
             "that holds "
             "it.")),
      of(kPairs, one_of(DATA(tokenizer_model), "How SentencePiece finds its pieces.", {"bpe", "unigram"})),
      of(kPairs, between(DATA(character_coverage),
                         "Share of characters SentencePiece keeps; 0.9995 for Chinese or Japanese.", 0.9, 1)),
      of(kTokens, between(DATA(vocab_size),
                          "Tokens, 4 special ones included: exactly so many for SentencePiece, at most for others.", 5,
                          10'000'000)),
      of(kPairs, any(DATA(joint_vocab), "One vocabulary for source and target.")),
      between(DATA(batch_size),
              "Most pairs in a batch, or 0 for as many as batch_tokens allows; the images or chunks in a batch.", 0,
              kMaxSize),
      of({"transformer", "t5", "marian", "language", "masked_language"},
         between(DATA(batch_tokens), "Most tokens in a batch, padding included, on its longer side; 0: no such limit.",
                 0, kMaxSize)),
      of(kPairs, between(DATA(num_buckets),
                         "Sizes that batches are padded to. More waste less padding but take longer to plan.", 1, 256)),

      of(kAdapted,
         between(LORA(rank),
                 "LoRA: the weights of model.from stay as they are, and beside each linear layer of `targets` "
                 "a product of two matrices of this rank is trained, and a new head. 0: all weights are "
                 "trained.",
                 0, 4096)),
      of(kAdapted, between(LORA(alpha), "The adapters' product is multiplied by alpha / rank.", 0, kMaxReal)),
      of(kAdapted, any(LORA(targets),
                       "Linear layers to adapt, by the names that the model's files have, separated by commas (query,"
                       "value), or all-linear, which empty stands for: all but the head.")),
      of(kAdapted, one_of(LORA(base_storage),
                          "How the matrices of model.from lie in memory: bf16 takes half of fp32, int8 (with a scale "
                          "for 32 neighbors) little more than a quarter, int4 half of that, but for tables.",
                          {"fp32", "bf16", "int8", "int4"})),

      of({"embeddings"},
         one_of(EMBEDDINGS(loss),
                "in_batch: a text's partner against all other partners of the batch (InfoNCE), and against the third "
                "texts of triplets. triplet: the partner is nearer than the third text by `margin`. Of scored pairs, "
                "cosent: cosines are in the order of the scores; cosine: they are the scores (squared error). auto: "
                "in_batch, and cosent where there are scores.",
                {"auto", "in_batch", "triplet", "cosent", "cosine"})),
      of({"embeddings"}, between(EMBEDDINGS(scale), "in_batch and cosent multiply cosines by this.", 1e-3, kMaxReal)),
      of({"embeddings"}, between(EMBEDDINGS(margin), "Of triplet, in Euclidean distance.", 0, kMaxReal)),
      of({"embeddings"}, any(EMBEDDINGS(dimensions),
                             "Matryoshka: the sum of the losses of so many first numbers of the embeddings, such as "
                             "\"256,128,64\"; empty: the loss of all of them.")),
      of({"answers"}, between(ANSWERS(stride),
                              "Tokens that windows of a text share, where question and text are longer than `context`.",
                              0, kMaxSize)),
      of({"answers"}, between(ANSWERS(longest), "Most tokens of an answer that is predicted.", 1, kMaxSize)),
      of({"answers"}, between(ANSWERS(candidates), "Candidates for an answer's begin and end in a window.", 1, 1000)),
      of({"answers"}, between(ANSWERS(threshold),
                              "There is no answer where its score exceeds that of the best answer by more than this.",
                              -kMaxReal, kMaxReal)),

      of({"preferences"},
         one_of(
             PREFERENCES(method),
             "How preferences are learned. dpo (Rafailov et al. 2023) and ipo (Azar et al. 2023) compare the model "
             "with "
             "model.from, of which it begins; orpo (Hong et al. 2024) also learns the chosen answers and compares with "
             "nothing.",
             {"dpo", "ipo", "orpo"})),
      of({"preferences"},
         between(PREFERENCES(beta),
                 "How closely dpo and ipo keep to model.from: more is closer. Of orpo: how much the preference counts "
                 "beside the chosen answer.",
                 0, kMaxReal)),

      of(kTaught,
         any(DISTILLATION(teacher),
             "A model folder whose probabilities are learned beside the data: of a language model one with the "
             "same tokenizer, of a classifier also with the same classes. It stays as it is.")),
      of(kTaught, between(DISTILLATION(temperature),
                          "Logits of both models are divided by it before the teacher's probabilities are learned.",
                          0.01, 1000)),
      of(kTaught,
         between(DISTILLATION(teacher_alpha),
                 "Share of the loss that comes from the teacher, by temperature^2; the rest is that of the data.", 0,
                 1)),

      one_of(
          TRAIN(optimizer),
          "How gradients become updates. adamw8bit keeps AdamW's moments in 8 bits; muon moves the matrices of layers "
          "along orthogonal directions and the rest by AdamW; adafactor keeps a row and a "
          "column of numbers for each matrix; lion keeps one moment "
          "where Adam keeps two, and wants about a third of its learning rate.",
          optimizer_names()),
      between(TRAIN(learning_rate),
              "The highest, reached at the end of the warmup. 0, of tasks on texts with labels: 5e-5 from model.from, "
              "1e-3 from nothing.",
              0, kMaxReal),
      one_of(TRAIN(schedule), "How the learning rate falls after the warmup; linear and cosine end with the training.",
             {"constant", "linear", "cosine", "inverse_sqrt"}),
      between(TRAIN(warmup_steps), "Steps in which the learning rate rises from 0; at most a quarter of all.", 0,
              kMaxCount),
      between(TRAIN(final_learning_rate), "Where linear and cosine end.", 0, kMaxReal),
      resumable(between(TRAIN(max_steps), "Updates of the weights.", 1, kMaxCount)),
      resumable(
          between(TRAIN(max_epochs), "Passes over the training data; 0: as many as max_steps takes.", 0, kMaxCount)),
      resumable(between(TRAIN(max_minutes),
                        "Training time with its evaluations, in minutes, over all resumes; 0: no limit. The learning "
                        "rate falls by what ends first: max_steps, max_epochs or this time.",
                        0, 1e9)),
      below(TRAIN(beta1), "Adam, Lion: decay of the mean of gradients; Muon: of its AdamW part.", 0, 1),
      below(TRAIN(beta2), "Adam, Muon: decay of the mean of squared gradients; Lion: of the mean that is kept.", 0, 1),
      between(TRAIN(epsilon), "Adam: added to the root of the mean of squares.", 0, kMaxReal),
      below(TRAIN(momentum), "SGD: decay of the velocity; 0: none. (Muon's is 0.95.)", 0, 1),
      between(
          TRAIN(weight_decay),
          "Of matrices, not of biases and norms. Adam and SGD add it to the gradient; it is decoupled in the others.",
          0, kMaxReal),
      between(TRAIN(clip_norm), "Largest norm of all gradients together; 0: no clipping.", 0, kMaxReal),
      of({"transformer", "t5", "marian", "language", "masked_language", "images"},
         below(TRAIN(label_smoothing),
               "Share of the target probability spread over the vocabulary or the classes; of task = \"preferences\" "
               "with dpo: the share of pairs that are taken to be the wrong way round.",
               0, 1)),
      of({"classification", "several_labels", "token_classification", "images"},
         any(TRAIN(class_weights),
             "How much the training examples of a class count: \"balanced\", so that all classes count alike, however "
             "rare "
             "they are, or \"spam=5,ham=1\", where classes that are not named have 1. Of several labels: how much a "
             "label "
             "counts where it is there. Evaluations count all examples alike.")),
      below(TRAIN(ema_decay),
            "Of a moving average of the weights; less in the first steps: (1 + step) / (10 + step). 0: none. Each "
            "evaluation "
            "compares the average with the weights, and the better of the two is saved.",
            0, 1),
      between(TRAIN(accumulate_steps),
              "Batches whose gradients make one update. Embeddings that learn of a whole batch see them, and all "
              "micro-batches, as one batch.",
              1, 1e6),
      between(
          TRAIN(micro_batches),
          "Parts into which each batch is cut, with one update for all of them: less memory, and other dropout masks "
          "and rounding. 0: as few as fit into `memory`, once recomputation alone does not do.",
          0, 1e6),
      between(TRAIN(data_shards),
              "Parts into which a step's batches are cut; they are computed apart, and their gradients are added in an "
              "order that depends on this number alone. Every number of ranks that divides it trains to the same bits; "
              "0: one for each rank.",
              0, 1e6),
      resumable(between(TRAIN(zero),
                        "With several ranks, ZeRO's stage: 1 divides the optimizer's moments, and the update, between "
                        "them; 2: the gradients too; 0: each rank has all of both. The bits are the same.",
                        0, 2)),
      resumable(
          any(TRAIN(parallel),
              "How several ranks share the work: \"tensor=2\" lets each two of them compute one model together, "
              "with a part of each layer, \"pipeline=2\" with some of its layers each, \"data=2,tensor=2\" two such "
              "pairs on different data; \"data=2,tensor=2,pipeline=2\" is all three. Further: "
              "\"pipeline=encoder-decoder\", \"pipeline=2,interleave=2\". Empty: every rank has the whole model and "
              "its own data.")),
      between(TRAIN(seed), "Of weights, dropout, shuffling and generated data.", 0, kMaxSeed),
      between(TRAIN(eval_every), "Steps between evaluations.", 1, kMaxCount),
      of(kPairs, between(TRAIN(eval_pairs), "Validation pairs translated in each; 0: all.", 0, kMaxCount)),
      of(kPairs, between(TRAIN(eval_beam), "Beam of these translations; 1 is greedy and fastest.", 1, 1024)),
      of({"language"},
         between(TRAIN(sample_length), "Of a language model: tokens of the sample that an evaluation writes.", 0, 1e6)),
      resumable(
          between(TRAIN(patience), "Stop after so many evaluations without a better one; 0: never.", 0, kMaxCount)),
      one_of(TRAIN(metric), "What makes a checkpoint the best.", metric_names()),
      of(kPairs, resumable(between(TRAIN(beam), "Beam of `linnet eval` and `linnet translate`.", 1, 1024))),
      of(kPairs, resumable(between(TRAIN(length_penalty),
                                   "Beam search ranks by log probability / length ^ length_penalty.", 0, 10))),
      resumable(between(TRAIN(save_every), "Steps between checkpoints.", 1, kMaxCount)),
      resumable(between(TRAIN(keep_checkpoints),
                        "Weights of the last so many checkpoints that are kept, for `linnet average`; 0: none.", 0,
                        1e6)),
      resumable(between(TRAIN(keep_every),
                        "Every so many steps the run is saved and its weights are kept for good; 0: never.", 0,
                        kMaxCount)),
      resumable(between(TRAIN(log_every), "Steps between lines of metrics.jsonl.", 1, kMaxCount)),
      resumable(any(TRAIN(tensorboard),
                    "Also write event files for TensorBoard into the run folder: scalars, and with every evaluation "
                    "histograms and samples.")),
      resumable(between(TRAIN(threads), "0: what the machine and its cgroup allow.", 0, 4096)),
      resumable(any(TRAIN(device), "Where training runs: cpu, cuda or cuda:N (needs the CUDA module, docs/gpu.md).")),
      one_of(TRAIN(precision),
             "In what products multiply: bf16 is about twice as fast where the CPU has it, and fp32 elsewhere. Sums, "
             "weights and everything else are fp32. On a GPU bf16 stores activations in bf16 too; tf32 is a GPU's. "
             "fp16 is "
             "the CPU's: operands are rounded to fp16, for its range, not for speed. int8 is the CPU's: products of "
             "linear layers and of their inputs' gradients multiply 8-bit numbers; all else is as with bf16.",
             {"fp32", "tf32", "bf16", "fp16", "int8"}),
      between(TRAIN(loss_scale),
              "With precision = \"fp16\": the loss is multiplied by this, a power of two, before the backward pass, so "
              "that gradients are not rounded to zero; where they overflow the step is skipped and the scale halved.",
              1, 1 << 24),
      between(TRAIN(loss_scale_steps), "The loss scale doubles after so many steps without an overflow.", 1, kMaxCount),
      of(kLayers,
         one_of(
             TRAIN(attention_precision),
             "same, or bf16: attention alone multiplies in bf16 and all else in `precision`. On a GPU that is cuDNN's "
             "attention on fp32 activations.",
             {"same", "bf16"})),
      one_of(
          TRAIN(quantize),
          "int8: linear layers compute with inputs and weights rounded to 8 bits, by steps that are trained, so that "
          "the model loses little when it runs in static int8, as it then does. On the CPU.",
          {"none", "int8"}),
      one_of(TRAIN(storage),
             "In what type activations are stored. auto: with precision = \"bf16\" or \"int8\" in bf16, where the "
             "machine multiplies "
             "in bf16; else in fp32. fp32: always.",
             {"auto", "fp32"}),
      resumable(one_of(TRAIN(recompute),
                       "What of each layer the backward pass computes again instead of keeping it in memory: nothing, "
                       "its attention, or all of it. auto: as much as `memory` asks for. Results are the same bits.",
                       {"auto", "none", "attention", "block"})),
      resumable(any(TRAIN(memory),
                    "The most memory the program may take while it trains, such as 2GiB or 500MB; on a GPU, of the "
                    "GPU's memory. Empty: what the machine has.")),
      any(TRAIN(isa), "Instruction set of the kernels; `linnet info` lists them. Another one rounds differently."),
      any(TRAIN(freeze),
          "Parameters that stay as they are: patterns of their names, separated by commas; '*' stands for any "
          "characters. [[train.groups]] says more of some parameters."),
  };
  return keys;
}
#undef MODEL
#undef DATA
#undef LORA
#undef EMBEDDINGS
#undef ANSWERS
#undef PREFERENCES
#undef DISTILLATION
#undef TRAIN

}  // namespace linnet
