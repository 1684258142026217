# Files that are missing, damaged or not models: exit 1, one sentence that names the file.

: >empty.gguf
echo "just some text, longer than a header" >text.gguf
mkdir -p bare bad_config no_weights
echo '{ "model_type": "qwen2", ' >bad_config/config.json
cp "$golden/qwen2/config.json" no_weights/
"$make_model" --shape micro --type f32 micro.gguf >make.log 2>&1 || {
    cat make.log
    verdict make_model "$make_model failed"
}
size=$(wc -c <micro.gguf)

for command in inspect "generate --prompt-ids 1 -m" "tokenize x -m"; do
    word=${command%% *}
    failure "${word}_missing_file" 'nowhere\.gguf' $command nowhere.gguf
    failure "${word}_empty_name" '^prevue: ' $command ''
    failure "${word}_empty_file" 'empty\.gguf' $command empty.gguf
    failure "${word}_text_file" 'text\.gguf' $command text.gguf
    failure "${word}_bare_directory" 'bare' $command bare
    failure "${word}_bad_config" 'config\.json' $command bad_config
    failure "${word}_no_weights" 'no_weights' $command no_weights
    failure "${word}_device_file" '/dev/null' $command /dev/null
done

# Cut anywhere, the file is refused.
for cut in 1 4 23 24 100 1000 $((size / 4)) $((size / 2)) $((size - 1)); do
    head -c "$cut" micro.gguf >cut.gguf
    failure "truncated_to_$cut" 'cut\.gguf' inspect cut.gguf
done

# patch OFFSET BYTES: a copy of the model with some bytes replaced.
patch()
{
    cp micro.gguf patched.gguf
    printf "$2" | dd of=patched.gguf bs=1 seek="$1" conv=notrunc 2>/dev/null
}
patch 0 'GGUX'
failure wrong_magic 'patched\.gguf' inspect patched.gguf
patch 4 '\377\377\377\377'
failure wrong_version 'patched\.gguf' inspect patched.gguf
patch 8 '\377\377\377\377\377\377\377\377'
failure huge_tensor_count 'patched\.gguf' inspect patched.gguf
patch 16 '\377\377\377\377\377\377\377\177'
failure huge_key_count 'patched\.gguf' inspect patched.gguf
patch 24 '\377\377\377\377\377\377\377\377'
failure huge_key_length 'patched\.gguf' inspect patched.gguf

# Output: nothing is left behind, nothing is overwritten unasked.
mkdir outdir
echo precious >outdir/taken.gguf
failure convert_missing_source 'nowhere' convert nowhere outdir/new.gguf --type f16
failure convert_damaged_source 'cut\.gguf' convert cut.gguf outdir/new.gguf --type f16
failure convert_no_directory 'nodir/new\.gguf' convert micro.gguf nodir/new.gguf --type f16
failure convert_to_directory 'outdir' convert micro.gguf outdir --type f16 --force
failure convert_taken 'taken\.gguf.*--force' convert micro.gguf outdir/taken.gguf --type f16
failure convert_adapter_missing 'nowhere/adapter_config\.json' convert "$golden/qwen2" outdir/new.gguf --type f16 --adapter nowhere
failure convert_adapter_of_file 'into a Hugging Face directory, which micro\.gguf is not' convert micro.gguf outdir/new.gguf --type f16 --adapter nowhere
failure convert_onto_itself 'same file' convert micro.gguf ./micro.gguf --type f16 --force
why=
[ "$(ls outdir)" = taken.gguf ] || why="files were left: $(ls outdir | tr '\n' ' ')"
[ "$(cat outdir/taken.gguf)" = precious ] || why="taken.gguf was overwritten"
verdict convert_leaves_nothing "$why"

failure prompt_file_missing 'nowhere\.txt' generate -m micro.gguf -f nowhere.txt
failure prompt_file_is_directory 'bare' generate -m micro.gguf -f bare
printf 'a\0b' >zero.txt
failure prompt_file_with_zero 'zero\.txt.*zero byte' generate -m micro.gguf -f zero.txt

# --- what newcomers run into ---

mkdir hub
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 4997750728\n' 0 >pointer.gguf
failure lfs_pointer 'pointer\.gguf: a git-LFS pointer of [0-9]+ bytes.*hf download' inspect pointer.gguf
cp pointer.gguf pointer.mp4
failure lfs_pointer_video 'pointer\.mp4: a git-LFS pointer, not the file itself' frames pointer.mp4 -o pointer-frames
: >nothing.gguf
failure empty_model 'nothing\.gguf: is empty' inspect nothing.gguf
head -c 100000 "$root/models/nano.gguf" >short.gguf
failure truncated_model 'short\.gguf: .*100000 bytes.*: it is truncated or damaged; download it again' inspect short.gguf
failure adaptor_is_no_model 'nano-adaptor\.gguf: only a vision adaptor' inspect "$root/models/nano-adaptor.gguf"
cp -r "$golden/qwen2_5_vl_video" hub/lfs
cp pointer.gguf hub/lfs/model.safetensors
failure lfs_pointer_in_directory 'lfs/model\.safetensors: a git-LFS pointer' inspect hub/lfs
cp -r "$golden/qwen2_5_vl_video" hub/cut
head -c 200000 "$golden/qwen2_5_vl_video/model.safetensors" >hub/cut/model.safetensors
failure safetensors_cut 'model\.safetensors: the file is truncated: it announces [0-9]+ bytes of tensors, and [0-9]+ are there; download it again' \
    inspect hub/cut
head -c 100 "$golden/qwen2_5_vl_video/model.safetensors" >hub/cut/model.safetensors
failure safetensors_header_cut 'the file is truncated: it announces [0-9]+ bytes of header, and 92 are there' inspect hub/cut
cp -r "$golden/qwen2_5_vl_video" hub/plain
rm hub/plain/chat_template.json
run generate -m hub/plain -p hi -n 2
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '^prevue: hub/plain: there is no chat template' err || why="that is not said"
verdict no_chat_template "$why"
run generate -m "$golden/qwen2_5_vl_video" -p hi -n 2
verdict with_chat_template "$([ ! -s err ] || echo 'stderr is not empty')"

for option in "-m Qwen/Qwen2.5-VL-3B-Instruct" "-m qwen2.5-vl-3b-instruct" "-m x -d Qwen/Qwen2.5-VL-3B-Instruct"; do
    failure "download $option" "hf download Qwen/Qwen2\.5-VL-3B-Instruct --local-dir Qwen2\.5-VL-3B-Instruct', then give --(model|draft) Qwen" \
        generate $option -p hi
done
failure download_unknown "hf download someone/something --local-dir something'" inspect someone/something
mkdir something
failure downloaded 'but there is something: give --model something' generate -m someone/something -p hi
failure download_of_a_path 'hub/none: No such file' generate -m hub/none -p hi
for command in describe bench frames view prepare; do
    misuse "${command}_url" 'https://x\.org/a\.mp4 is a URL, and only files are read' $command https://x.org/a.mp4
    misuse "${command}_stdin" 'cannot be read from standard input' $command -
done
misuse describe_file_url 'give the name of the file, /tmp/a\.mp4' describe file:///tmp/a.mp4

# --- published models, and whether this machine can run a model ---

succeeds models_list '^Qwen/Qwen2\.5-VL-7B-Instruct +8\.29 +15\.4 +8\.2 +4\.3 +1\.3  ' models
verdict models_width "$([ "$(wc -L <out)" -le 100 ] || echo 'lines are longer than 100 columns')"
succeeds models_frames '^Qwen/Qwen2\.5-VL-7B-Instruct +8\.29 +15\.4 +8\.2 +4\.3 +2\.5  ' models --frames 128
succeeds models_details '^draft head +hf download AngelSlim/Qwen3-VL-4B-Instruct_eagle3 --local-dir Qwen3-VL-4B-Instruct_eagle3$' models vl-4b
failure models_unknown 'has "gpt" in its name' models gpt
misuse models_two 'unexpected argument' models a b
run models --json
why=
grep -q '"model":"tsinghua-ee/video-SALMONN-2_plus_72B","adapter_of":"tsinghua-ee/video_SALMONN2plus_72B_audioAlign"' out ||
    why="an adapter without its base"
if command -v python3 >/dev/null; then
    python3 -m json.tool out >/dev/null || why="it cannot be parsed"
fi
verdict models_json "$why"
succeeds inspect_fits '^this machine [0-9.]+ GiB of memory, [0-9.]+ GiB available: enough for the' inspect micro.gguf
succeeds inspect_fits_json '"available":[0-9]+,"fits":true}' inspect micro.gguf --json
