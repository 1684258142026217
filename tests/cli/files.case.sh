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
failure convert_adapter_of_file 'micro\.gguf, which is no directory' convert micro.gguf outdir/new.gguf --type f16 --adapter nowhere
failure convert_onto_itself 'same file' convert micro.gguf ./micro.gguf --type f16 --force
why=
[ "$(ls outdir)" = taken.gguf ] || why="files were left: $(ls outdir | tr '\n' ' ')"
[ "$(cat outdir/taken.gguf)" = precious ] || why="taken.gguf was overwritten"
verdict convert_leaves_nothing "$why"

failure prompt_file_missing 'nowhere\.txt' generate -m micro.gguf -f nowhere.txt
failure prompt_file_is_directory 'bare' generate -m micro.gguf -f bare
printf 'a\0b' >zero.txt
failure prompt_file_with_zero 'zero\.txt.*zero byte' generate -m micro.gguf -f zero.txt
