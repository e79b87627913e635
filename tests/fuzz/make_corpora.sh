#!/usr/bin/env bash
# First inputs of the fuzz targets, from the golden files: tests/fuzz/make_corpora.sh FOLDER makes FOLDER/<target>/*.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
golden=tests/golden
place() { mkdir -p "$out/$1" && cat >"$out/$1/$2"; }
out=$1

for file in $golden/tokenizers/*.json; do
  [[ $file == */golden.json ]] || place tokenizer_json_fuzz "${file##*/}" <"$file"
done
for file in $golden/tokenizers/*.model; do place sentencepiece_fuzz "${file##*/}" <"$file"; done
for file in $golden/pretrained/*/config.json $golden/pretrained/*/generation_config.json; do
  name=${file#"$golden/pretrained/"}
  place model_config_fuzz "${name/\//_}" <"$file"
done
for file in $golden/pretrained/{gpt2,bert_model,t5}/model.safetensors; do
  head -c 20000 "$file" | tail -c +9 | { printf '\xff\x40' && cat; } | place safetensors_fuzz "$(basename "$(dirname "$file")")"
done
for file in $golden/gguf/{qwen3_moe,gpt2,gemma2,llama_scaled}.gguf; do head -c 6000 "$file" | place gguf_fuzz "${file##*/}"; done
python3 tests/fuzz/small_gguf.py "$out/gguf_fuzz"
place pickled_file_fuzz whole <$golden/pickled/weights.bin
python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("weights/data.pkl"))' $golden/pickled/weights.bin |
  place pickled_file_fuzz pickle
printf '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}' |
  { printf '\x50\x00' && cat && printf '12345678'; } | place safetensors_fuzz small
printf '{"model":"m","prompt":["a",[1]],"stream":true,"stop":"x"}' | place api_request_fuzz completion
printf '{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"logprobs":true}' | place api_request_fuzz chat
printf '{"inputs":["a"],"parameters":{"top_k":1,"num_beams":2}}' | place api_request_fuzz inputs
header='{"__metadata__":{"linnet_packed":"2"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"linnet.file:a/b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}'
printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))%sabc" "$header" | place packed_model_fuzz whole
# A layer of 16 outputs and 32 inputs in each form: NAME DTYPE SHAPE BYTES of its tensors, then the bias.
packed_layer() {
  local word=$1 offset=0 header part
  shift
  header="{\"__metadata__\":{\"linnet_packed\":\"2\",\"linnet_parameters\":\"{\\\"quantize\\\":\\\"$word\\\",\\\"tables\\\":\\\"\\\",\\\"keep\\\":[]}\"}"
  for part in "$@" ".bias F32 [16] 64"; do
    set -- $part
    header+=",\"fc$1\":{\"dtype\":\"$2\",\"shape\":$3,\"data_offsets\":[$offset,$((offset + $4))]}"
    offset=$((offset + $4))
  done
  header+='}'
  { printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))%s" "$header" && head -c "$offset" /dev/zero; } |
    place packed_model_fuzz "$word"
}
packed_layer none ".weight F32 [16,32] 2048"
packed_layer bf16 ".weight BF16 [16,32] 1024"
packed_layer int8 ".weight.codes I8 [1,1,8,16,4] 512" ".weight.scales F32 [16] 64" ".weight.sums I32 [16] 64"
packed_layer int8-weights ".weight.codes I8 [1,1,8,16,4] 512" ".weight.scales BF16 [1,1,16] 32" ".weight.padding U8 [32] 32"
packed_layer int4-weights ".weight.codes U8 [1,1,4,16,4] 256" ".weight.scales BF16 [1,1,16] 32" ".weight.padding U8 [32] 32"
# A tokenizer.json, an empty line, and changes of its tables: eight bytes behind an offset of three.
for file in $golden/tokenizers/{bert,unigram}.json; do
  { tr -d '\n' <"$file" && printf '\n\n\x21\0\0\xff\xff\xff\xff\xff\xff\xff\x7f'; } | place packed_model_fuzz "$(basename "$file")"
done
printf '{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}\n\n\x2a\0\0\1\0\0\0\0\0\0\0' |
  place packed_model_fuzz bpe
printf '{"weight_map":{"a":"1","b":"1","c":"2"},"metadata":{"total_size":3}}' | place shard_index_fuzz whole
printf '{"weight_map":{"a":"3","c":"2"}}' | place shard_index_fuzz other
printf '{"weight_map":{"a":"folder"}}' | place shard_index_fuzz folder
printf '{"a":0,"b":1,"ab":2,"<|endoftext|>":3}\n\n#version: 0.2\na b\n' | place gpt2_files_fuzz small
printf '{"a":0,"\xc4\xa0":1,"\xc4\xa0a":2,"t":3,"h":4,"e":5,"th":6,"the":7}\n\n\xc4\xa0 a\r\nt h\r\nth e\r\n' |
  place gpt2_files_fuzz crlf
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n##a\na\n##1\n' | place bert_vocabulary_fuzz small
printf '[UNK]\r\nThe\r\n\n\n{"do_lower_case":false,"strip_accents":null,"tokenize_chinese_chars":false}' |
  place bert_vocabulary_fuzz config
printf '{"bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":null,"model_max_length":512}\n\n{"unk_token":"<unk>"}' |
  place tokenizer_config_fuzz small
printf '{"cls_token":"[CLS]","mask_token":"<mask>","model_max_length":1000000000000000019884624838656}' |
  place tokenizer_config_fuzz large
for line in task=text d_model=16 'tokenizer = "char"'; do echo "$line" | place config_fuzz "${line%%[ =]*}"; done
printf 'linnet-tokenizer 1 char 2\na\nb\n' | place tokenizer_fuzz char
