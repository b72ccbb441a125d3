#!/bin/bash
vllm serve mistralai/Mistral-7B-Instruct --host 0.0.0.0
