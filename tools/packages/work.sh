#!/usr/bin/env bash
# What a first user does, in little: trains models of each kind of text in the current folder and asks them. Prints answers
# alone, which are the same wherever the same program runs. `linnet` is on PATH; check.sh runs this in fresh systems.
set -euo pipefail

quiet() { "$@" >log 2>&1 || { cat log >&2; exit 1; }; }

cat >scripts.txt <<'TEXT'
Vorfreude schönster Tag, ça va, naïve façade, señor Łódź
Η γρήγορη αλεπού πηδά πάνω από τον σκύλο
Съешь ещё этих мягких французских булок
דג סקרן שט לו בים זך אך לפתע פגש חבורה
نص حكيم له سر قاطع وذو شأن عظيم
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า
敏捷的棕色狐狸跳过了懒狗
いろはにほへと ちりぬるを ガギグ
키스의 고유조건은 입술끼리 만나야 하고
TEXT
for _ in {1..40}; do cat scripts.txt; done >many.txt
paste many.txt many.txt >pairs.tsv

linnet --version
quiet linnet demo --run demo --set max_steps=60
echo "12. Mai 2031" | linnet translate demo

quiet linnet train translate --data pairs.tsv --run translation --set max_steps=20 --set vocab_size=400 --set d_model=32 --set d_ff=64 --set num_heads=2
head -n 2 scripts.txt | linnet translate translation --threads 1

quiet linnet train text --data many.txt --run text --set max_steps=20 --set vocab_size=400 --set d_model=32 --set d_ff=64 --set num_heads=2 --set num_layers=2
linnet generate text --prompt "Съешь ещё" --max-tokens 12 --temperature 0 --threads 1

quiet linnet train classify --data <(awk '{ print $0 "\t" (NR % 10 < 5 ? "first" : "second") }' many.txt) --run classes --set max_steps=20
linnet predict classes <scripts.txt

quiet linnet export classes --out encoder
linnet embed encoder <scripts.txt

linnet serve text --port 0 >served 2>&1 &
server=$!
until port=$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' served | head -n 1) && [[ $port ]]; do
  kill -0 $server || { cat served >&2; exit 1; }
  sleep 0.1
done
body='{"model": "text", "prompt": "敏捷", "max_tokens": 8, "temperature": 0}'
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
  "$(LC_ALL=C; printf %s "${#body}")" "$body" >&3
tr -d '\r' <&3 | grep -o '"text":"[^"]*"'
kill -TERM $server
wait $server
