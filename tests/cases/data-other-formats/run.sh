# Data that is not JSON lines is refused with its format and a command that converts it.
source "$(dirname "$0")/../lib.sh"
named() {
  train --dry-run --set data.prompt_data="$T/$1" && wrong "$1 is taken"
  grep -q "^error: the file is .*$2" out && grep -qF "$3" out || wrong "$1: $(cat out)"
}
printf 'PAR1\x15\x04\x15\x10' >a.parquet; named a.parquet 'parquet' 'pyarrow.parquet'
iconv -f UTF-8 -t UTF-16 prompts.jsonl >utf16.jsonl; named utf16.jsonl 'UTF-16' 'iconv -f UTF-16 -t UTF-8'
iconv -f UTF-8 -t UTF-16LE prompts.jsonl >le.jsonl; named le.jsonl 'UTF-16LE' 'iconv -f UTF-16LE'
printf 'prompt,label\n1+1=,2\n' >t.csv; named t.csv 'table (CSV)' 'csv.DictReader'
printf '[\n  {"prompt": "a", "label": "b"}\n]\n' >list.json; named list.json 'one JSON list' 'json.load'
gzip -k prompts.jsonl; named prompts.jsonl.gz 'gzip' 'gunzip'
printf '\xfd7zXZ\x00\x00' >p.jsonl.xz; named p.jsonl.xz 'xz' 'xz -dc'
printf 'BZh91AY&SY' >p.jsonl.bz2; named p.jsonl.bz2 'bzip2' 'bzip2 -dc'
printf 'PK\x03\x04' >p.zip; named p.zip 'zip' 'unzip'
printf '<!doctype html>\n<html>' >p.html; named p.html 'HTML page' 'hf download'
# The printed command for the list makes rows that are accepted.
if command -v python3 >/dev/null; then
  named list.json 'one JSON list' 'json.load'
  eval "$(grep '^ *python3 -c' out)"
  train --dry-run --set data.prompt_data="$T/list.jsonl" || wrong "the converted file: $(cat out)"
fi
