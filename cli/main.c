/* prevue: its commands. */
#include "command.h"

static const struct command commands[] = {
    { "describe", "answer a question about videos and pictures", cmd_describe, &describe_options },
#ifndef PV_CORE
    { "chat", "a conversation about videos and pictures", cmd_chat, &chat_options },
    { "batch", "answer questions about many videos", cmd_batch, &batch_options },
    { "frames", "write the frames that a model gets as PNG files, and the sound", cmd_frames,
      &frames_options },
    { "prepare", "write a question about videos to a file, for machines without FFmpeg",
      cmd_prepare, &prepare_options },
#endif
    { "serve", "an OpenAI-compatible server with a web page", cmd_serve, &serve_options },
    { "generate", "answer a prompt", cmd_generate, &generate_options },
    { "tokenize", "token ids of a text", cmd_tokenize, &tokenize_options },
    { "models", "published models: sizes, memory, drafters, how to download them", cmd_models,
      &models_options },
    { "inspect", "contents of a model, and the memory it needs", cmd_inspect, &inspect_options },
    { "convert", "write a model as one GGUF file", cmd_convert, &convert_options },
    { "version", "version and CPU features in use", cmd_version, &version_options },
    { "help", "this text, or that of a command", cmd_help, &help_options },
};

const struct program program = {
    .name = "prevue",
    .about = "Runs video and text language models on CPUs and NVIDIA GPUs, from GGUF files\n"
             "and Hugging Face directories.\n",
    .commands = commands,
    .n = sizeof commands / sizeof *commands,
#ifdef PV_CORE
    .left_out = "batch chat frames prepare",
#endif
    .moved = "bench view",
    .moved_to = "prevue-lab",
};

int main(int argc, char **argv)
{
    return program_run(argc, argv);
}
