# Devices that cannot be used: exit 1, one sentence. Which one depends on the build and the machine.
# Names that are no devices are a misuse.

"$make_model" --shape micro --type q8_0 device.gguf >/dev/null
device_gone='this build has no CUDA|this machine has no NVIDIA driver|no NVIDIA GPU can be used'
device_gone="$device_gone|NVIDIA driver of this machine is for|there is no GPU 999: this machine has"

failure device_999 "$device_gone" generate -m device.gguf --prompt-ids 1,2 --device cuda:999
failure draft_device_999 "$device_gone" \
    generate -m device.gguf -d device.gguf --prompt-ids 1,2 --draft-device cuda:999
for value in '' cuda: cuda:x cuda:1x cuda:-1 cudax CUDA gpu 'cuda:0 ' cuda:99999; do
    misuse "device_$value" "option --device: unknown device '$value' .use cpu, cuda, cuda:N" \
        generate -m device.gguf --prompt-ids 1,2 --device "$value"
done
misuse draft_device "option --draft-device: unknown device 'gpu'" \
    generate -m device.gguf -d device.gguf --prompt-ids 1,2 --draft-device gpu
succeeds device_cpu '"ids":\[[0-9,]+\]' \
    generate -m device.gguf --prompt-ids 1,2 -n 4 --ignore-eos --json --device cpu

# A GPU takes weights as long as it has room; hollow matrices take none of the disk. The simulator
# has 4 GiB, no GPU as much as this.
run generate -m device.gguf --prompt-ids 1,2 -n 1 --device cuda
if [ "$status" -eq 0 ]; then
    "$make_model" --shape q72 --type f32 --hollow device_large.gguf >/dev/null
    failure device_weights 'device_large.gguf has [0-9]+ bytes of weights: [0-9]+ of the' \
        generate -m device_large.gguf --prompt-ids 1,2 -n 1 --device cuda
fi
